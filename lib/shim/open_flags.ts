/** Flags of `open(2)` that `OpenFlag` does not have; two of them differ by architecture. */
const arm = process.arch === "arm64";

/** Must not exist; with `O_CREAT`. */
export const O_EXCL = 0o200;
/** Cut to length 0. */
export const O_TRUNC = 0o1000;
/** Must be a directory. */
export const O_DIRECTORY: number = arm ? 0o40000 : 0o200000;
/** Must not be a symbolic link. */
export const O_NOFOLLOW: number = arm ? 0o100000 : 0o400000;
/** Only the place is meant, nothing is opened. */
export const O_PATH = 0o10000000;
/** Bits of the access mode. */
export const ACCESS_MODE = 3;
