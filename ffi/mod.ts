/** The foundation: system calls, memory, layouts, errors. The only folder that knows which runtime it is on. */
export * from "./error.ts";
export * from "./errno.ts";
export * from "./errno.ts";
export * from "./u64.ts";
export * from "./native.ts";
export * from "./memory.ts";
export * from "./memory.ts";
export * from "./kernel.ts";
export * from "./kernel.ts";
export * from "./layout.ts";
