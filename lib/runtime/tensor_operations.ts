import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { BatchReport, BatchTransfer, DeviceMemory, Dmem } from "../dmem/types.ts";
import { NrtError } from "./errors.ts";
import type { Tensor } from "./tensor.ts";
import { type DeviceUse } from "./tensor_storage.ts";
import { bytesOf } from "../dmem/host_data.ts";

const ADLER_MODULUS = 65521;
const CHECKSUM_PIECE = 1 << 20;
const MOVE_PIECE = 1 << 20;

/** Options of {@linkcode copyTensor}. */
export interface TensorCopyOptions {
  /** Byte offset in the source, default 0. */
  readonly at?: number | undefined;
  /** Byte offset in the destination, default 0. */
  readonly to?: number | undefined;
  /** Bytes; default what both have left. */
  readonly size?: number | undefined;
}

/**
 * Copies between tensors: on the device when both are in driver memory of one
 * HBM, through the host when either is plain host memory. Waits for the fences
 * of both.
 *
 * @throws {NrtError} NRT_INVALID outside either view, or between two HBMs
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2" });
 * const core = neuron.logicalCore(0);
 * using a = core.tensor({ name: "a", size: 4096 });
 * using b = core.tensor({ name: "b", size: 4096 });
 * await a.fill(7);
 * await copyTensor(a, b, { size: 16 });
 * console.log(new Uint8Array(await b.read(2)).join(" ")); // → 7 7
 */
export async function copyTensor(source: Tensor, destination: Tensor, options: TensorCopyOptions = {}): Promise<void> {
  const from = options.at ?? 0;
  const to = options.to ?? 0;
  const size = options.size ?? Math.min(source.size - from, destination.size - to);
  const a = source.access("read", from, size);
  const b = destination.access("write", to, size);
  while (!a.idle("read") || !b.idle("write")) await (a.idle("read") ? b : a).change();
  if (a.bytes !== undefined) return destination.deviceWrite(a.bytes.subarray(source.offset + from, source.offset + from + size), to);
  if (b.bytes !== undefined) return source.deviceRead(b.bytes.subarray(destination.offset + to, destination.offset + to + size), from);
  if (a.memory === undefined || b.memory === undefined || size === 0) return;
  if (a.hbm !== b.hbm || a.device !== b.device) throw acrossHbms(source, destination);
  const range = { at: source.offset + from, to: destination.offset + to, size };
  if (a === b && Math.abs(range.at - range.to) < size) moveWithin(a.memory, range);
  else a.memory.copyTo(b.memory, range);
}

/**
 * Moves bytes to an overlapping place of the same memory, as memmove does. What
 * the device does with overlapping ranges is not known, so that the host carries
 * them, from the end that is not overwritten yet.
 */
function moveWithin(memory: Dmem, range: { readonly at: number; readonly to: number; readonly size: number }): void {
  const { at, to, size } = range;
  for (let done = 0; done < size; done += MOVE_PIECE) {
    const length = Math.min(MOVE_PIECE, size - done);
    const piece = to > at ? size - done - length : done;
    memory.write(memory.read(length, { at: at + piece }), { at: to + piece });
  }
}

/** All operations on one tensor in a batch (`nrt_tensor_batch_t`). */
export interface TensorBatch {
  /** The tensor. */
  readonly tensor: Tensor;
  /** Transfers; offsets are within the view. */
  readonly operations: readonly { readonly offset: number; readonly buffer: ArrayBufferView }[];
}

/** Options of a batch. */
export interface TensorBatchOptions {
  /** Skips the fences: the caller knows that no execution uses the tensors. Default false. */
  readonly unsafe?: boolean | undefined;
}

/**
 * Fills many buffers from tensors, in one request per device where the driver
 * has batches. Everything is checked before anything is sent; after a failure
 * there is no telling how many operations were done.
 *
 * @throws {NrtError} NRT_INVALID for an empty batch or an operation outside its view
 *
 * @example
 * using neuron = openNeuron({ fake: { product: "trn2", driverVersion: "2.27" } });
 * using cache = neuron.logicalCore(0).tensor({ name: "cache", size: 1 * MiB });
 * await cache.fill(5);
 * const rows = [new Uint8Array(64), new Uint8Array(64)];
 * const [report] = await readBatch([{ tensor: cache, operations: rows.map((buffer, row) => ({ offset: row * 4096, buffer })) }]);
 * console.log(`${report?.bytes} bytes in ${report?.requests} request, first byte ${rows[0]![0]}`); // → 128 bytes in 1 request, first byte 5
 */
export function readBatch(batch: readonly TensorBatch[], options: TensorBatchOptions = {}): Promise<readonly BatchReport[]> {
  return runBatch("read", batch, options);
}

/**
 * Writes many buffers into tensors; see {@linkcode readBatch}.
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2" });
 * using cache = neuron.logicalCore(0).tensor({ name: "cache", size: 1 * MiB });
 * await writeBatch([{ tensor: cache, operations: [{ offset: 0, buffer: new Uint8Array([1]) }, { offset: 4096, buffer: new Uint8Array([2]) }] }]);
 * console.log(new Uint8Array(await cache.read(1, { at: 4096 })).join()); // → 2
 */
export function writeBatch(batch: readonly TensorBatch[], options: TensorBatchOptions = {}): Promise<readonly BatchReport[]> {
  return runBatch("write", batch, options);
}

async function runBatch(use: DeviceUse, batch: readonly TensorBatch[], options: TensorBatchOptions): Promise<readonly BatchReport[]> {
  if (batch === null || batch === undefined || batch.length === 0) {
    throw new NrtError(NrtStatus.INVALID, `Cannot ${use} a batch: Invalid arguments: tensor_batches is NULL or num_batches is 0`, { hint: "Give at least one tensor and operation." });
  }
  const storages = batch.map(({ tensor, operations }) => {
    const storage = tensor.access(use, 0, 0);
    for (const { offset, buffer } of operations) tensor.access(use, offset, buffer.byteLength);
    return storage;
  });
  const busy = () => storages.find((storage) => !storage.idle(use));
  if (options.unsafe !== true) for (let storage = busy(); storage !== undefined; storage = busy()) await storage.change();
  const perDevice = new Map<DeviceMemory, BatchTransfer[]>();
  batch.forEach(({ tensor, operations }, index) => {
    const { memory, device } = storages[index]!;
    if (memory === undefined || device === undefined) {
      for (const { offset, buffer } of operations) {
        if (use === "read") tensor.deviceRead(bytesOf(buffer), offset);
        else tensor.deviceWrite(bytesOf(buffer), offset);
      }
      return;
    }
    const transfers = perDevice.get(device) ?? [];
    transfers.push({ memory, offset: tensor.offset, operations });
    perDevice.set(device, transfers);
  });
  return [...perDevice].map(([device, transfers]) => (use === "read" ? device.batchOut(transfers) : device.batchIn(transfers)));
}

/**
 * Adler-32 of a whole view. @throws {NrtError} NRT_INVALID for a tensor without bytes
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2" });
 * using tensor = neuron.logicalCore(0).tensor({ name: "x", size: 9 });
 * await tensor.write(new TextEncoder().encode("Wikipedia"));
 * console.log((await checksumTensor(tensor)).toString(16)); // → 11e60398
 */
export async function checksumTensor(tensor: Tensor): Promise<number> {
  if (tensor.access("read", 0, tensor.size).kind === "FAKE") {
    throw new NrtError(NrtStatus.INVALID, `Cannot checksum tensor ${tensor.name}: its storage has no bytes`);
  }
  let a = 1;
  let b = 0;
  for (let at = 0; at < tensor.size; at += CHECKSUM_PIECE) {
    for (const byte of new Uint8Array(await tensor.read(Math.min(CHECKSUM_PIECE, tensor.size - at), { at }))) {
      a = (a + byte) % ADLER_MODULUS;
      b = (b + a) % ADLER_MODULUS;
    }
  }
  return b * 65536 + a;
}

function acrossHbms(source: Tensor, destination: Tensor): NrtError {
  const [from, to] = [source.storage?.hbm, destination.storage?.hbm];
  const sameDevice = source.storage?.device === destination.storage?.device;
  return new NrtError(
    NrtStatus.INVALID,
    `Cannot copy tensor ${source.name} to ${destination.name}: Tensors must be allocated on same HBM (SRC: ${from}) (DST: ${to})${sameDevice ? "" : ", and on one device"}`,
    { hint: "Allocate both on cores that share an HBM, or read one and write the other.", details: { source: source.name, destination: destination.name, from, to } },
  );
}
