/** Version of this package, as `--version` prints it; a test compares it with `package.json`. */
export const VERSION = "0.1.0";
