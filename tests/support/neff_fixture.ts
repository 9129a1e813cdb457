import type { MemberSpec, NeffSpec } from "../../lib/neff_write/mod.ts";

/**
 * The small NEFF that ships inside the runtime library, rebuilt member by member from
 * its published description: GNU tar, lower-case engine files, `tmp-buf` variables, a
 * target that runs anywhere. Its checksums are known, so it proves the writer to the byte.
 */

const json = (value: unknown): string => JSON.stringify(value, null, 2);

/** Keys sorted at every level. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, item]) => [key, sorted(item)]));
}

/** 64-byte instruction slots from hex words; each slot is filled with zeros. */
function program(...slots: readonly (readonly [number, string])[][]): Uint8Array {
  const bytes = new Uint8Array(slots.length * 64);
  slots.forEach((parts, slot) => {
    for (const [at, hex] of parts) {
      const digits = hex.startsWith("'") ? Buffer.from(hex.slice(1)).toString("hex") : hex.replaceAll(" ", "");
      bytes.set(Buffer.from(digits, "hex"), slot * 64 + at);
    }
  });
  return bytes;
}

const KELF = { graphs: [{ definition: "sg00/def.json", name: "sg00" }], version: "0.5", target: "*" };

const GRAPH = {
  nodes: [
    { op: "null", name: "input", inputs: [], output_names: ["input"], is_param: "0" },
    {
      op: "tvm_op",
      name: "sg_tonga0",
      attrs: { func_name: "__kelf", flatten_data: "0", num_inputs: "1", kelf: "kelf-a.json", num_outputs: "1" },
      inputs: [[0, 0, 0]],
      output_names: ["output"],
    },
  ],
  arg_nodes: [0],
  heads: [[1, 0, 0]],
  attrs: { shape: ["list_shape", [[32], [32]]], storage_id: ["list_int", [0, 1]], dltype: ["list_str", ["float32", "float32"]] },
  node_row_ptr: [0, 1, 2],
};

/** The definition's variables. */
export const FIXTURE_VARIABLES = {
  SB: { type: "state-buffer", var_id: 1 },
  gradient_in: { "#file-name": "gradient_in-simout.npy", "#transfer-type": "tmp-buf", size: 128, type: "tmp-buf", var_id: 3 },
  gradient_out: { "#file-name": "gradient_out-simout.npy", "#transfer-type": "tmp-buf", size: 128, type: "tmp-buf", var_id: 4 },
  input: { "#transfer-type": "input", element_size: 4, internal_shape: [1, 1, 1, 32], size: 128, type: "input", var_id: 0 },
  output: {
    "#file-name": "value_nn__output:0-simout.npy",
    "#transfer-type": "output",
    element_size: 4,
    internal_shape: [1, 1, 1, 32],
    size: 128,
    type: "output",
    var_id: 2,
  },
};

/** The definition, for tests that vary it. */
export const FIXTURE_DEFINITION = {
  act: "act.json",
  debug_info: { wavegraph: "wavegraph-bin.json" },
  dma_queue: {
    q_gradient_in: { owner: "pool", semaphore: 10, type: "in" },
    q_gradient_out: { owner: "pool", semaphore: 11, type: "out" },
  },
  dve: "dve.json",
  git_version: "",
  name: "definition",
  pe: "pe.json",
  pool: "pool.json",
  replica_groups: [[]],
  runtime_statebuffer_reservation: [],
  var: FIXTURE_VARIABLES,
  version: "0.6-",
};

const transfer = (from: string, to: string, queue: string): unknown => ({
  desc: [{
    from,
    from_off: 0,
    from_sizes: [128, 1],
    from_steps: [1, 128],
    to,
    to_off: 0,
    to_sizes: [128, 1],
    to_steps: [1, 128],
  }],
  id: 0,
  queue,
});

const engine = (name: string): string =>
  json({ dma: [], instr: `${name}.bin`, name: name === "pe" ? "pe_array_json" : `${name}_array_json` });

const POOL = {
  dma: [transfer("input", "gradient_in", "q_gradient_in"), transfer("gradient_out", "output", "q_gradient_out")],
  instr: "pool.bin",
  name: "pool_array_json",
};

const ACT = {
  act_info: "act_info.json",
  act_semaphore: 9,
  activation_function_sets: [],
  activation_functions: [],
  dma: [],
  instr: "act.bin",
  name: "act_array_json",
};

const PE_BIN = program([[0, "c8100000 040a1316 00000000 040a0000 03000000 04000000 20000000 00000000 01"]]);

const POOL_BIN = program(
  [[0, "c1100000"], [12, "'q_gradient_in"]],
  [[0, "c1100000 04160000 00000000"], [12, "'q_gradient_out"]],
  [[0, "a0100000 040b0000"]],
);

const PE_ASM =
  "PSEUDO_TRIGGER_COLLECTIVE $S[10]>0 $S[22]++@complete ctype=ALL_REDUCE input_tensor_id=3 output_tensor_id=4 num_elements=32 dtype=fp32 op=ADD group_id=0;\n";

const POOL_ASM =
  "PSEUDO_DMA_TRIGGER q_gradient_in block_id=0;\nPSEUDO_DMA_TRIGGER $S[22]>0 q_gradient_out block_id=0;\nEVENT_SEMAPHORE $S[11]>0;\n";

/** The nineteen members in their published order. */
export function fixtureMembers(definition: unknown = FIXTURE_DEFINITION): MemberSpec[] {
  return [
    { name: "kelf-a.json", data: `${json(KELF)}\n` },
    { name: "neff.json", data: json(GRAPH) },
    { name: "sg00/" },
    { name: "sg00/pe.json", data: engine("pe") },
    { name: "sg00/def.json", data: json(sorted(definition)) },
    { name: "sg00/pool.bin", data: POOL_BIN },
    { name: "sg00/sp.asm" },
    { name: "sg00/pe.bin", data: PE_BIN },
    { name: "sg00/dve.json", data: engine("dve") },
    { name: "sg00/act.json", data: json(ACT) },
    { name: "sg00/dve.bin" },
    { name: "sg00/dve.asm" },
    { name: "sg00/act.bin" },
    { name: "sg00/sp.bin" },
    { name: "sg00/sp.json", data: engine("sp") },
    { name: "sg00/pool.asm", data: POOL_ASM },
    { name: "sg00/pe.asm", data: PE_ASM },
    { name: "sg00/pool.json", data: json(POOL) },
    { name: "sg00/act.asm" },
  ];
}

/** The fixture as packager 2 (gzip, one stored block) or packager 1 (bare tar) writes it. */
export function fixtureSpec(packager: 1 | 2 = 2, definition: unknown = FIXTURE_DEFINITION): NeffSpec {
  return {
    members: fixtureMembers(definition),
    packager,
    compression: packager === 2 ? "stored" : "none",
    dialect: "gnu",
    tarFillBytes: 10_240,
    hashTail: "30".repeat(16),
    header: {
      major: 2,
      buildVersion: "2.0.21884.0%kaena-tools/develop@6c66f4b",
      uuid: "561826fb-125f-4bb8-991c-29e085c8949a",
      name: "x",
      tpbPerNode: [],
    },
  };
}
