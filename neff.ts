/** Compiled models: reading, checking, comparing, unpacking and writing NEFFs. No device is needed for any of it. */
export * from "./lib/neff/mod.ts";
export * from "./lib/neff_write/mod.ts";
