/** One Neuron device request by request, and its memory without the runtime: allocators, handles, copies, ledger. */
export * from "./lib/driver/mod.ts";
export * from "./lib/dmem/mod.ts";
export { type Kernel, linuxKernel, Mapping } from "./ffi/kernel.ts";
export { defaultHbm, type Hbm } from "./lib/abi/architecture.ts";
