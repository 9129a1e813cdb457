/** What the tests of the runtime share. */
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import type { LedgerCounters } from "../../lib/dmem/types.ts";
import { openDevice } from "../../lib/driver/device.ts";
import { createFake, type FakeMachine, type FakeOptions } from "../../lib/fake/machine.ts";
import type { EngineSpec, QueueSpec, VariableSpec } from "../../lib/neff_write/build_definition.ts";
import type { Neff } from "../../lib/neff/model.ts";
import { createHandleMinter } from "../../lib/runtime/model_database.ts";
import type { Neuron } from "../../lib/runtime/neuron.ts";
import { openNeuron, type OpenNeuronOptions } from "../../lib/runtime/open_neuron.ts";
import { modelOf, pattern } from "../plan/support.ts";

export { pattern } from "../plan/support.ts";

export const MiB = 2 ** 20;

/** A Neuron on a fake, with no environment and handles of its own. */
export function open(options: OpenNeuronOptions = {}): Neuron {
  const target = options.kernel === undefined ? { fake: "trn2" as const } : {};
  return openNeuron({ ...target, env: {}, handles: createHandleMinter(), ...options });
}

/** A machine whose state outlives the processes on it. */
export function machineOf(options: FakeOptions): FakeMachine {
  return createFake(options);
}

/** Chunks and bytes that processes hold on a machine, the driver's own pieces not counted. */
export function chunksOn(machine: FakeMachine): { readonly count: number; readonly bytes: number } {
  let count = 0;
  let bytes = 0;
  for (const entry of machine.devices) {
    if (entry === undefined) continue;
    using device = openDevice({ kernel: machine.kernel(), index: entry.index });
    for (let hbm = 0; hbm < device.geometry.hbms.length; hbm++) {
      for (const chunk of device.dumpChunks(hbm)) {
        if (chunk.category === MemCategory.NCDEV_DEVICE) continue;
        count += 1;
        bytes += chunk.size;
      }
    }
  }
  return { count, bytes };
}

/** The ledgers of all devices, as plain data. */
export function ledgers(neuron: Neuron): readonly LedgerCounters[] {
  return neuron.devices.map(({ memory }) => memory.ledger.counters());
}

/** Cells of the ledgers that differ, as `device core usage` → bytes. */
export function ledgerDifference(before: readonly LedgerCounters[], after: readonly LedgerCounters[]): Record<string, number> {
  const found: Record<string, number> = {};
  before.forEach((one, device) => one.cores.forEach((row, core) => row.forEach((bytes, usage) => {
    const difference = after[device]!.cores[core]![usage]! - bytes;
    if (difference !== 0) found[`${device} ${core} ${usage}`] = difference;
  })));
  return found;
}

/** What a small test model is made of. */
export interface SmallModel {
  readonly name?: string;
  readonly target?: string;
  /** Subgraphs, default 1. */
  readonly subgraphs?: number;
  /** Bytes of the constant, default 8192. */
  readonly weights?: number;
  /** Scratchpad variables: offset and size. */
  readonly virtuals?: readonly (readonly [offset: number, size: number])[];
  /** More variables. */
  readonly more?: readonly VariableSpec[];
  /** Whether it has instructions and transfers, default true. */
  readonly engines?: boolean;
  /** More keys of the definition. */
  readonly extra?: Readonly<Record<string, unknown>>;
  /** State buffer reservations, when not the target's own. */
  readonly reservations?: Neff["subgraphs"][number]["reservations"];
}

/** A small model: one input, one output, one constant, instructions, a queue with transfers. */
export function smallModel(spec: SmallModel = {}): Neff {
  const count = spec.subgraphs ?? 1;
  const variables = (index: number): VariableSpec[] => [
    { name: "SB", type: "state-buffer" },
    { name: "input0", type: "input", size: 4096 },
    { name: "output0", type: "output", size: 2048 },
    { name: `weights${index}`, type: "file", data: pattern(spec.weights ?? 8192, index + 1), alignment: 4096 },
    ...(spec.virtuals ?? []).map(([offset, size], number): VariableSpec => ({ name: `v${number}_sg${index}`, type: "virtual", offset, size })),
    ...(spec.more ?? []),
  ];
  const engines: Readonly<Partial<Record<"pe" | "act" | "pool" | "dve" | "sp", EngineSpec>>> = spec.engines === false ? {} : {
    pe: { instructions: 100 },
    act: { instructions: 10 },
    pool: {
      instructions: 20,
      blocks: [{ queue: "qIn", transfers: [{ from: { variable: "input0", bytes: 4096 }, to: { variable: "SB", bytes: 4096 } }] }],
    },
    dve: { instructions: 30 },
    sp: { instructions: 5 },
  };
  const queues: Record<string, QueueSpec> = spec.engines === false ? {} : { qIn: { owner: "pool", type: "in", semaphores: [3] } };
  return modelOf(
    Array.from({ length: count }, (_, index) => ({
      variables: variables(index), engines, queues,
      ...(spec.extra === undefined ? {} : { extra: spec.extra }),
      ...(spec.reservations === undefined ? {} : { reservations: spec.reservations }),
    })),
    { target: spec.target ?? "cayman", header: { name: spec.name ?? "small.neff" } },
  );
}

/** Whether a promise has settled once everything that can run has run. */
export async function settled(promise: Promise<unknown>): Promise<boolean> {
  let done = false;
  promise.then(() => (done = true), () => (done = true));
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  return done;
}

/** A check for `assert.throws` and `assert.rejects`: status and text. */
export function status(code: number, text: RegExp): (error: unknown) => boolean {
  return (error) => {
    const { status: found, message } = error as { status?: number; message?: string };
    if (found === code && text.test(message ?? "")) return true;
    throw new Error(`expected status ${code} and ${text}, got ${found}: ${message}`);
  };
}
