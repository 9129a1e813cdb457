import * as v from "valibot";
import { duplicateKey, neededBytes, readDefinition } from "./definition.ts";
import { checkReservations, sizeOfVariable, tensorBytes } from "./variable.ts";
import { NeffError, printable } from "./error.ts";
import { jsonPath, parseJson } from "./json.ts";
import { readKelf } from "./kelf.ts";
import type { NeffLimits } from "./limits.ts";
import type { ArchiveFacts, FileVariable, Member, Neff, NeffHeader, Note, Subgraph, TensorInfo } from "./model.ts";
import { type PayloadRange, payloadRange } from "./npy.ts";
import { checkShape, found, isTable, shapeError, Table, Whole } from "./shape.ts";

/** Most dimensions of a tensor. */
const MOST_DIMENSIONS = 32;

const Edge = v.array(Whole);

const Graph = v.looseObject({
  nodes: v.array(
    v.looseObject({
      name: v.optional(v.string(), ""),
      attrs: v.optional(Table),
      output_names: v.optional(v.array(v.string())),
    }),
  ),
  arg_nodes: v.array(Whole),
  heads: v.array(Edge),
  node_row_ptr: v.array(Whole),
  attrs: Table,
});

type GraphData = v.InferOutput<typeof Graph>;

/** A tensor as the host graph tells it; its size is known only with the definitions. */
type GraphTensor = Omit<TensorInfo, "size">;

/** The host graph: which kelf file, which tensors in which order. */
export interface HostGraph {
  readonly member: string;
  /** Name of the kelf member. */
  readonly kelf: string;
  readonly inputs: readonly GraphTensor[];
  /** De-duplicated; null when the graph names no outputs. */
  readonly outputs: readonly GraphTensor[] | null;
}

/** Reads `neff.json` (old name `kelp.json`), a graph in TVM's form (kelf notes, section 2). */
export function readHostGraph(context: { members: ReadonlyMap<string, Member>; limits: NeffLimits }): HostGraph {
  const { members, limits } = context;
  const member = !members.has("neff.json") && members.has("kelp.json") ? "kelp.json" : "neff.json";
  const document = parseJson(neededBytes(members, member, "host graph"), { member, limits, duplicates: "report" });
  const repeated = document.duplicates.find(({ key }) => !key.startsWith("#"));
  if (repeated !== undefined) throw duplicateKey(repeated, member);
  const graph = checkShape(Graph, document.value, member);
  const node = graph.nodes.findIndex(({ attrs }) => attrs?.["func_name"] === "__kelf");
  if (node < 0) {
    throw shapeError('no KELF node found: a node with attrs.func_name "__kelf" is needed', { member, path: "$.nodes" });
  }
  const kelf = graph.nodes[node]?.attrs?.["kelf"];
  if (typeof kelf !== "string") {
    throw shapeError(kelf === undefined ? "the KELF node has no kelf" : `kelf is not a string, found ${found(kelf)}`, {
      member,
      path: `$.nodes[${node}].attrs.kelf`,
    });
  }
  const entries = entryReader(graph, member);
  return { member, kelf, inputs: readInputs(graph, entries), outputs: readOutputs(graph, { node, entries, member }) };
}

type EntryReader = (node: number, output: number, name: string, path: string) => GraphTensor;

/** Shape and type of entry `node_row_ptr[node] + output`. */
function entryReader(graph: GraphData, member: string): EntryReader {
  const shapes = attribute(graph, "shape", member);
  const dtypes = attribute(graph, "dltype", member);
  return (node, output, name, path) => {
    const row = graph.node_row_ptr[node];
    if (row === undefined) throw shapeError(`node ${node} does not exist`, { member, path });
    const entry = row + output;
    const shape = shapes[entry];
    const dtype = dtypes[entry];
    if (shape === undefined || dtype === undefined) {
      throw shapeError(`missing dltype or shape in attrs for entry ${entry}`, { member, path });
    }
    if (!Array.isArray(shape) || !shape.every((dimension) => Number.isSafeInteger(dimension) && dimension >= 0)) {
      throw shapeError(`invalid shape: whole numbers are expected, found ${found(shape)}`, {
        member,
        path: `$.attrs.shape[1][${entry}]`,
      });
    }
    if (shape.length > MOST_DIMENSIONS) {
      throw shapeError(`${shape.length} dimensions, at most ${MOST_DIMENSIONS}`, { member, path: `$.attrs.shape[1][${entry}]` });
    }
    if (typeof dtype !== "string") {
      throw shapeError(`invalid type: text is expected, found ${found(dtype)}`, { member, path: `$.attrs.dltype[1][${entry}]` });
    }
    return { name, shape: shape as readonly number[], dtype };
  };
}

/** The list in a pair such as `["list_shape", […]]`. */
function attribute(graph: GraphData, key: string, member: string): readonly unknown[] {
  const pair = Object.hasOwn(graph.attrs, key) ? graph.attrs[key] : undefined;
  if (pair === undefined) throw shapeError(`missing ${key} in attrs`, { member, path: `$.attrs.${key}` });
  if (!Array.isArray(pair) || !Array.isArray(pair[1])) {
    throw shapeError(`invalid data format: a pair ["list_…", […]] is expected, found ${found(pair)}`, {
      member,
      path: `$.attrs.${key}`,
    });
  }
  return pair[1] as readonly unknown[];
}

function readInputs(graph: GraphData, entries: EntryReader): readonly GraphTensor[] {
  return graph.arg_nodes.map((node, index) => entries(node, 0, graph.nodes[node]?.name ?? "", `$.arg_nodes[${index}]`));
}

/** The heads by name. A file with two subgraphs repeats each output once per subgraph. */
function readOutputs(
  graph: GraphData,
  context: { node: number; entries: EntryReader; member: string },
): readonly GraphTensor[] | null {
  const names = graph.nodes[context.node]?.output_names;
  if (names === undefined || names.length === 0) return null;
  const outputs = new Map<string, GraphTensor>();
  for (const [index, head] of graph.heads.entries()) {
    const [node = 0, output = 0] = head;
    const path = `$.heads[${index}]`;
    const name = node === context.node ? names[output] : graph.nodes[node]?.name;
    if (name === undefined) {
      throw shapeError(`head ${index} names output ${output}, the node has ${names.length}`, { member: context.member, path });
    }
    const tensor = context.entries(node, output, name, path);
    if (!outputs.has(name)) outputs.set(name, tensor);
  }
  return [...outputs.values()];
}

/** Joins the host graph's tensors of one direction with the variables of all subgraphs. */
export function bindTensors(
  direction: "input" | "output",
  context: { graph: HostGraph; subgraphs: readonly Subgraph[]; notes: Note[] },
): readonly TensorInfo[] {
  const { graph, subgraphs, notes } = context;
  const sizes = new Map<string, number>();
  for (const subgraph of subgraphs) {
    for (const variable of subgraph.byId) {
      if (variable.type !== direction) continue;
      const known = sizes.get(variable.name);
      const size = sizeOfVariable(variable);
      if (known !== undefined && known !== size) {
        notes.push({
          code: "size-differs",
          message: `${direction} "${variable.name}" has ${known} bytes in one subgraph and ${size} in ${subgraph.name}`,
        });
      }
      sizes.set(variable.name, Math.max(known ?? 0, size));
    }
  }
  const tensors = (direction === "input" ? graph.inputs : graph.outputs) ?? [];
  const bound = tensors.map((tensor) => bindOne(tensor, { direction, size: sizes.get(tensor.name), notes }));
  const named = new Set(tensors.map(({ name }) => name));
  const unnamed = [...sizes].filter(([name]) => !named.has(name));
  if (unnamed.length > 0 && (direction === "input" || graph.outputs !== null)) {
    notes.push({
      code: "io-differs",
      message: `${graph.member} does not list ${direction} ${unnamed.map(([name]) => `"${name}"`).join(", ")} of the definitions`,
    });
  }
  return [...bound, ...unnamed.map(([name, size]) => ({ name, shape: null, dtype: null, size }))];
}

function bindOne(tensor: GraphTensor, context: { direction: string; size: number | undefined; notes: Note[] }): TensorInfo {
  const { direction, size, notes } = context;
  const expected = tensor.shape === null || tensor.dtype === null ? undefined : tensorBytes(tensor.shape, tensor.dtype);
  if (size === undefined) {
    notes.push({ code: "io-differs", message: `no definition has the ${direction} "${tensor.name}" that the host graph lists` });
    return { ...tensor, size: expected !== undefined && Number.isSafeInteger(expected) ? expected : 0 };
  }
  if (expected !== undefined && expected !== size) {
    notes.push({
      code: "size-differs",
      message: `${direction} "${tensor.name}": shape and type give ${expected} bytes, the variable has ${size}`,
    });
  }
  return { ...tensor, size };
}

const Info = v.looseObject({ tool_version: v.optional(v.string()) });

/** `tool_version` of `info.json`. The runtime ignores that file, so one that cannot be read is a note. */
export function readCompiler(
  context: { members: ReadonlyMap<string, Member>; limits: NeffLimits; notes: Note[] },
): string | null {
  const bytes = context.members.get("info.json")?.bytes;
  if (bytes === undefined || bytes === null) return null;
  try {
    const { value } = parseJson(bytes, { member: "info.json", limits: context.limits, duplicates: "ignore" });
    return (isTable(value) ? checkShape(Info, value, "info.json").tool_version : undefined) ?? null;
  } catch (error) {
    if (!(error instanceof NeffError)) throw error;
    context.notes.push({ code: "info-unreadable", message: `info.json cannot be read: ${error.reason}` });
    return null;
  }
}

/** What the container layer hands over. */
export interface NeffParts {
  readonly header: NeffHeader;
  readonly archive: ArchiveFacts;
  readonly members: ReadonlyMap<string, Member>;
  readonly notes: Note[];
  readonly limits: NeffLimits;
  readonly wrappedAt: number | null;
  readonly fileBytes: number;
  /** Name of the file, for errors of what is read later. */
  readonly file: string | undefined;
  /** Takes the constants that have not passed by yet; without it a constant that is missing is an error. */
  readonly addPending?: ((member: Member) => void) | undefined;
}

/** Reads the documents in the archive and ties them together: host graph, kelf file, definitions, constants. */
export function assembleNeff(parts: NeffParts): Neff {
  const { members, limits, notes, header, file } = parts;
  const graph = readHostGraph({ members, limits });
  const kelf = readKelf(graph.kelf, { members, limits });
  const subgraphs = kelf.graphs.map(({ name, definition }, index) =>
    readDefinition({ name, index, definitionPath: definition, members, limits, notes, file })
  );
  for (const subgraph of subgraphs) {
    checkConstants(subgraph, members, parts.addPending);
    notes.push(...checkReservations(subgraph, kelf.target));
  }
  if (subgraphs.length !== 1 && subgraphs.length !== header.lncSize) {
    notes.push({
      code: "lnc-differs",
      message: `the header says ${header.lncSize} physical cores per logical core, the file has ${subgraphs.length} subgraphs`,
    });
  }
  return {
    header,
    archive: parts.archive,
    compiler: readCompiler({ members, limits, notes }),
    target: kelf.target,
    kelfVersion: kelf.facts.version,
    kelf: kelf.facts,
    subgraphs,
    inputs: bindTensors("input", { graph, subgraphs, notes }),
    outputs: bindTensors("output", { graph, subgraphs, notes }),
    notes,
    members,
    wrappedAt: parts.wrappedAt,
    fileBytes: parts.fileBytes,
  };
}

/** Every constant has its member, and the payload has the size the variable says. */
function checkConstants(subgraph: Subgraph, members: ReadonlyMap<string, Member>, addPending: NeffParts["addPending"]): void {
  for (const variable of subgraph.byId) {
    if (variable.type !== "file") continue;
    const { member: name, size } = variable;
    if (!members.has(name)) addPending?.({ name, size, offset: 0, mode: 0, bytes: null, head: new Uint8Array(0), pending: true });
    payloadRange(variable, constantMember(variable, { members, subgraph }));
  }
}

/** The member of a constant. @throws {NeffError} when the archive has none */
export function constantMember(
  variable: FileVariable,
  context: { members: ReadonlyMap<string, Member>; subgraph: Pick<Subgraph, "definitionPath"> },
): Member {
  const member = context.members.get(variable.member);
  if (member !== undefined) return member;
  throw new NeffError(`the constant "${printable(variable.member)}" is not in the archive`, {
    kind: "invalid-definition",
    where: { member: context.subgraph.definitionPath, path: `${jsonPath("$.var", variable.name)}.file_name` },
  });
}

/** A constant's payload and where it lies. */
export interface ConstantPayload extends PayloadRange {
  readonly member: Member;
  /** The payload, a view of the archive; null when it was not kept (`retain: "definitions"`). */
  readonly bytes: Uint8Array | null;
}

/**
 * The payload of a `file` variable: the numpy header is left out, nothing is copied
 * or converted. `offset` and `size` are the payload's place in its member. Throws a
 * `NeffError` when the member is missing or its length is not the variable's size.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * const subgraph = neff.subgraphs[0]!;
 * const weight = subgraph.variables.get("weight0");
 * if (weight?.type === "file") console.log(constantPayload(neff, subgraph, weight).size); // → 32768
 */
export function constantPayload(
  neff: Pick<Neff, "members">,
  subgraph: Pick<Subgraph, "definitionPath">,
  variable: FileVariable,
): ConstantPayload {
  const member = constantMember(variable, { members: neff.members, subgraph });
  const range = payloadRange(variable, member);
  return {
    ...range,
    member,
    bytes: member.bytes === null ? null : member.bytes.subarray(range.offset, range.offset + range.size),
  };
}
