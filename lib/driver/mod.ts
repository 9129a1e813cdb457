/** One Neuron device as typed requests, and the layers between a client and the kernel. */
export { openDevice, driverVersion } from "./device.ts";
export * from "./discover.ts";
export * from "./error.ts";
export * from "./layers.ts";
export * from "./types.ts";
export type { AnyRequest } from "./arguments.ts";
