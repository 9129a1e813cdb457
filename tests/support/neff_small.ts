import { encodeNpy } from "../../lib/neff/mod.ts";
import type { MemberSpec, NeffSpec } from "../../lib/neff_write/mod.ts";

/**
 * The smallest model that has a bit of everything the reader looks at: it is parsed
 * tens of thousands of times in a test run.
 */
export function smallSpec(): NeffSpec {
  const json = (value: unknown): string => JSON.stringify(value);
  const definition = {
    dma_queue: { q: { owner: "sp", type: "in", num_queues: 16, semaphore_set: [8, 9] } },
    name: "definition",
    neff_features: ["neff_feature_vnc"],
    runtime_statebuffer_reservation: [{ type: "evtaccel", base_partition: 0, partitions: 128, offset: 229_368, size: 8 }],
    sp: "SP.json",
    var: {
      SB: { type: "state-buffer", var_id: 0 },
      "SB{0}": { type: "remote", var_id: 8 },
      in: { type: "input", var_id: 1, size: 64, ops: [] },
      l: { type: "dge-table", var_id: 7, list: [1, 2] },
      out: { type: "output", var_id: 2, size: 64, ops: [] },
      p: { type: "pointer", var_id: 6, referenced_var_id: 5 },
      t: { type: "tmp-buf", var_id: 5, size: 10, alignment: 8, prefix: "t", pipe: 1 },
      v: { type: "virtual", var_id: 4, size: 64, backing_variable_off: 64, backing_buf: "shared" },
      w: { type: "file", var_id: 3, size: 32, alignment: 32, file_name: "w.npy", dtype: "float32", shape: [8] },
    },
    version: "0.6",
  };
  const transfer = {
    from: "in",
    from_off: 0,
    from_sizes: [64, 1],
    from_steps: [1, 64],
    to: "SB",
    to_off: 0,
    to_sizes: [1, 64],
    to_steps: [1, 262_144],
  };
  const gather = {
    from_arr: [{ from: "SB", from_sizes: [4], from_steps: [1] }, { from: "w" }],
    op: "add",
    to: "out",
    to_off: 60,
    to_sizes: [4],
    to_steps: [1],
  };
  const graph = {
    nodes: [
      { op: "null", name: "in", inputs: [] },
      {
        op: "tvm_op",
        name: "k",
        attrs: { func_name: "__kelf", kelf: "kelf-0.json" },
        inputs: [[0, 0, 0]],
        output_names: ["out"],
      },
    ],
    arg_nodes: [0],
    heads: [[1, 0, 0]],
    node_row_ptr: [0, 1, 2],
    attrs: { shape: ["list_shape", [[16], [16]]], dltype: ["list_str", ["float32", "float32"]] },
  };
  const members: MemberSpec[] = [
    { name: "info.json", data: json({ tool_version: "1.0" }) },
    {
      name: "kelf-0.json",
      data: json({ graphs: [{ definition: "sg00/def.json", name: "sg00" }], target: "cayman", version: "0.5" }),
    },
    { name: "neff.json", data: json(graph) },
    { name: "sg00/SP.bin", data: new Uint8Array(64) },
    {
      name: "sg00/SP.json",
      data: json({ dma: [{ id: 0, queue: "q", semaphore: 8, desc: [transfer, gather] }], instr: "SP.bin", name: "SP" }),
    },
    { name: "sg00/def.json", data: json(definition) },
    { name: "sg00/w.npy", data: encodeNpy({ descr: "<f4", shape: [8], data: new Uint8Array(32) }) },
  ];
  return { members, header: { featureBits: 0x800n } };
}

/** A protobuf message around a NEFF: a text field, a nested message with the NEFF in field 43, a number. */
export function wrapInProtobuf(neff: Uint8Array): Uint8Array {
  const varint = (value: number): number[] => {
    const bytes: number[] = [];
    let rest = value;
    for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
    return [...bytes, rest];
  };
  const field = (number: number, bytes: Uint8Array): Uint8Array =>
    new Uint8Array(Buffer.concat([Uint8Array.from([...varint(number * 8 + 2), ...varint(bytes.length)]), bytes]));
  const text = field(1, new TextEncoder().encode("module"));
  const instruction = Buffer.concat([
    field(1, new TextEncoder().encode("custom-call")),
    field(43, neff),
    Uint8Array.from([...varint(50 * 8), 7]),
  ]);
  return new Uint8Array(Buffer.concat([text, field(3, field(2, new Uint8Array(instruction))), field(19, new Uint8Array(0))]));
}
