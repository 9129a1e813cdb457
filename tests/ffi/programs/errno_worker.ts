// Fails calls in its own thread and reports the errno numbers it saw.
import { native } from "../../../ffi/native.ts";

const system = native();
const seen = new Set<number>();
for (let i = 0; i < 2000; i++) seen.add(system.ioctl(-1, 0x80044e06, 0));
(globalThis as unknown as { postMessage(value: unknown): void }).postMessage([...seen]);
