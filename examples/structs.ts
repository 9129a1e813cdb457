/**
 * The driver's structs without a copy, for people who debug the driver: a struct
 * is a view over memory with a fixed address, a request is a number.
 */
import { MemAllocV2MT64, requests } from "neuron-dmem/abi";

const argument = MemAllocV2MT64.alloc();
argument.size = 4096;
argument.dramChannel = 1;

console.log(requests.MEM_ALLOC_V2MT64.hex, `${MemAllocV2MT64.byteLength} bytes`, MemAllocV2MT64.offsets);
console.log("first 24 bytes", [...argument.$bytes.subarray(0, 24)].map((byte) => byte.toString(16).padStart(2, "0")).join(" "));
