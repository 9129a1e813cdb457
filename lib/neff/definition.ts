import * as v from "valibot";
import { NeffError, printable } from "./error.ts";
import { readEngine } from "./engine.ts";
import { type DuplicateKey, type JsonDocument, jsonPath, parseJson } from "./json.ts";
import type { NeffLimits } from "./limits.ts";
import {
  type DmaQueue,
  type Engine,
  type EngineFile,
  ENGINES,
  type Member,
  type Note,
  type Reservation,
  type Subgraph,
  type Variable,
} from "./model.ts";
import {
  checkShape,
  fieldError,
  fieldOf,
  type JsonFields,
  found,
  isTable,
  shapeError,
  Table,
  textField,
  Whole,
  wholeField,
  wholeListField,
} from "./shape.ts";
import { inDirectory, isRepetition, readVariable } from "./variable.ts";

/** What reading one definition needs. */
export interface DefinitionContext {
  /** Name of the subgraph in the kelf file. */
  readonly name: string;
  readonly index: number;
  readonly definitionPath: string;
  readonly members: ReadonlyMap<string, Member>;
  readonly limits: NeffLimits;
  /** Name of the file, for errors of engine files, which are read later. */
  readonly file?: string | undefined;
  /** Notes are added here. */
  readonly notes: Note[];
}

const Definition = v.looseObject({
  version: v.optional(v.string(), ""),
  var: Table,
  dma_queue: v.optional(Table, {}),
  neff_features: v.optional(v.array(v.string()), []),
  cc_streams: v.optional(v.looseObject({ num_streams: v.optional(Whole, 1) }), { num_streams: 1 }),
  replica_groups: v.optional(v.array(v.array(Whole)), []),
  src_target_pairs: v.optional(v.array(v.array(Whole)), []),
  ucode_lib: v.optional(v.union([v.string(), v.array(v.string())]), []),
  ext_isa_ucode_lib_def: v.optional(v.union([v.string(), v.array(v.string())]), []),
  pe: v.optional(v.string()),
  act: v.optional(v.string()),
  pool: v.optional(v.string()),
  dve: v.optional(v.string()),
  sp: v.optional(v.string()),
});

/** Bytes of a member whose content is needed to read the file. */
export function neededBytes(members: ReadonlyMap<string, Member>, name: string, purpose: string): Uint8Array {
  const member = members.get(name);
  if (member === undefined) {
    throw new NeffError(`${purpose} "${printable(name)}" is not in the archive`, {
      kind: "invalid-definition",
      where: { member: name },
    });
  }
  if (member.bytes === null) {
    throw new NeffError(`${purpose} "${printable(name)}" was not kept`, {
      kind: "limit",
      where: { member: name },
      hint: 'Only JSON members are kept with retain: "definitions": read the file with retain: "all".',
    });
  }
  return member.bytes;
}

/** Reads `sgNN/def.json` (kelf notes, sections 4 to 7). Engine files are read when they are looked at. */
export function readDefinition(context: DefinitionContext): Subgraph {
  const { definitionPath: member, limits, members } = context;
  const bytes = neededBytes(members, member, "definition");
  const document = parseJson(bytes, { member, limits, duplicates: "report" });
  const root = checkShape(Definition, document.value, member);
  judgeDuplicates(document, context);
  const directory = member.includes("/") ? member.slice(0, member.lastIndexOf("/")) : "";
  const { byId, variables } = readVariables(root.var, { ...context, directory });
  const rootFields: JsonFields = { table: root, member, path: () => "$" };
  const engines = ENGINES.map((engine) => engineOf(engine, root[engine], { ...context, directory }));
  let descriptors: number | undefined;
  return {
    name: context.name,
    index: context.index,
    directory,
    definitionPath: member,
    definitionBytes: bytes.length,
    version: root.version,
    features: root.neff_features,
    variables,
    byId,
    engines,
    // Looked up when asked for: members of a file that is still passing by join later.
    get codeBytes(): number {
      return codeBytes(directory, byId, members);
    },
    dmaQueues: readQueues(root.dma_queue, member),
    get dmaDescriptors(): number {
      return (descriptors ??= engines.reduce((sum, engine) => sum + engine.contents.descriptors, 0));
    },
    reservations: readReservations(rootFields),
    ccStreams: root.cc_streams.num_streams,
    replicaGroups: root.replica_groups,
    sourceTargetPairs: root.src_target_pairs,
    ucodeLibraries: [root.ucode_lib, root.ext_isa_ucode_lib_def].flat(),
  };
}

/**
 * Keys that occur twice. A variable may be repeated with the same id (the runtime's
 * parser returns quietly); anything else that repeats would mean two different things
 * to two readers and is refused. Comment keys do not matter.
 */
function judgeDuplicates(document: JsonDocument, context: DefinitionContext): void {
  for (const duplicate of document.duplicates) {
    if (duplicate.key.startsWith("#")) continue;
    if (duplicate.parent !== "$.var") throw duplicateKey(duplicate, context.definitionPath);
    if (!isRepetition(duplicate.first, duplicate.second)) {
      const ids = [duplicate.first, duplicate.second].map((entry) => found(isTable(entry) ? entry["var_id"] : undefined));
      throw new NeffError(`variable "${printable(duplicate.key)}" is defined twice, with ids ${ids.join(" and ")}`, {
        kind: "invalid-definition",
        where: { member: context.definitionPath, path: duplicate.path, memberOffset: duplicate.offset },
      });
    }
    context.notes.push({
      code: "repeated-variable",
      message: `${context.definitionPath}: variable "${
        printable(duplicate.key)
      }" occurs twice with the same id; the first one counts`,
    });
  }
}

/** The refusal of a key that occurs twice. */
export function duplicateKey(duplicate: DuplicateKey, member: string): NeffError {
  return new NeffError(`key "${printable(duplicate.key)}" occurs twice; readers do not agree which one counts`, {
    kind: "invalid-definition",
    where: { member, path: duplicate.path, memberOffset: duplicate.offset },
  });
}

interface VariablesContext extends DefinitionContext {
  readonly directory: string;
}

/** All variables after the loader's checks: ids exactly 0 … n−1, at least one output, references exist. */
function readVariables(
  table: Readonly<Record<string, unknown>>,
  context: VariablesContext,
): Pick<Subgraph, "byId" | "variables"> {
  const { definitionPath: member, limits } = context;
  const names = Object.keys(table);
  if (names.length > limits.variables) {
    throw new NeffError(`${names.length} variables, at most ${limits.variables} are read`, {
      kind: "limit",
      where: { member, path: "$.var" },
    });
  }
  const byId = Array.from<Variable | undefined>({ length: names.length });
  const read = variableReader(context);
  const variables = new Map<string, Variable>();
  let beyond: Variable | undefined;
  let outputs = 0;
  for (const name of names) {
    const variable = read(name, table[name]);
    const { varId } = variable;
    const other = varId < names.length ? byId[varId] : idBeyond(variables, beyond, varId);
    if (other !== undefined) throw sameId(other, variable, member);
    if (varId < names.length) byId[varId] = variable;
    else if (beyond === undefined || varId > beyond.varId) beyond = variable;
    variables.set(name, variable);
    if (variable.type === "output") outputs++;
  }
  if (beyond !== undefined) throw idsWithGaps(byId, beyond.varId, member);
  if (outputs === 0) throw shapeError("no outputs: at least one variable of type output is needed", { member, path: "$.var" });
  const dense = byId as readonly Variable[];
  checkReferences(dense, member);
  return { byId: dense, variables };
}

/** A variable read before whose id lies beyond the count too: already an error, but two of them get the clearer one. */
function idBeyond(variables: ReadonlyMap<string, Variable>, beyond: Variable | undefined, varId: number): Variable | undefined {
  return beyond === undefined ? undefined : [...variables.values()].find((variable) => variable.varId === varId);
}

function sameId(a: Variable, b: Variable, member: string): NeffError {
  return shapeError(`variables "${printable(a.name)}" and "${printable(b.name)}" both have id ${b.varId}`, {
    member,
    path: `${jsonPath("$.var", b.name)}.var_id`,
  });
}

/** As many variables as ids, none twice: without one beyond the count there is no gap. */
function idsWithGaps(byId: readonly (Variable | undefined)[], highest: number, member: string): NeffError {
  const gap = byId.indexOf(undefined);
  return shapeError(
    `unexpected var_ids set: ${byId.length} variables need the ids 0 to ${
      byId.length - 1
    }, the highest is ${highest}, ${gap} is missing`,
    { member, path: "$.var" },
  );
}

/** Reads one entry after the other; what they share is made once. */
function variableReader(context: VariablesContext): (name: string, entry: unknown) => Variable {
  const { definitionPath: member, limits, directory } = context;
  let current = "";
  const path = (): string => jsonPath("$.var", current);
  const place = { name: "", directory, fields: { table: {} as Readonly<Record<string, unknown>>, member, path } };
  return (name, entry) => {
    current = name;
    if (name.length > limits.variableNameBytes) {
      throw new NeffError(`a variable's name has ${name.length} characters, at most ${limits.variableNameBytes} are read`, {
        kind: "limit",
        where: { member, path: path() },
      });
    }
    if (!isTable(entry)) throw shapeError(`a variable is an object, found ${found(entry)}`, { member, path: path() });
    place.name = name;
    place.fields.table = entry;
    return readVariable(place);
  };
}

/** Lists and pointers must name ids that exist. */
function checkReferences(variables: readonly Variable[], member: string): void {
  for (const variable of variables) {
    if (variable.type === "pointer" && variable.referencedVarId >= variables.length) {
      throw shapeError(`no variable has id ${variable.referencedVarId}`, {
        member,
        path: `${jsonPath("$.var", variable.name)}.referenced_var_id`,
      });
    }
    if (variable.type !== "list" && variable.type !== "dge-table" && variable.type !== "ptr-table") continue;
    const wrong = variable.list.findIndex((id) => id >= variables.length);
    if (wrong >= 0) {
      throw shapeError(`no variable has id ${variable.list[wrong]}`, {
        member,
        path: `${jsonPath("$.var", variable.name)}.list[${wrong}]`,
      });
    }
  }
}

function engineOf(engine: Engine, fileName: string | undefined, context: VariablesContext): EngineFile {
  const member = fileName === undefined || fileName === "" ? null : inDirectory(context.directory, fileName);
  const file = readEngine(engine, { member, directory: context.directory, members: context.members, limits: context.limits, file: context.file });
  if (!file.present) {
    const why = member === null ? "the definition names none" : `"${printable(member)}" is not in the archive`;
    context.notes.push({
      code: "engine-missing",
      message: `${context.definitionPath}: no file for engine ${engine} (${why}); it stays idle`,
    });
  }
  return file;
}

/** Instructions and tables: all `.bin` files of the directory that are no constants. */
function codeBytes(directory: string, variables: readonly Variable[], members: ReadonlyMap<string, Member>): number {
  const constants = new Set<string>();
  for (const variable of variables) if (variable.type === "file") constants.add(variable.member);
  const prefix = directory === "" ? "" : `${directory}/`;
  let sum = 0;
  for (const { name, size } of members.values()) {
    if (name.startsWith(prefix) && name.endsWith(".bin") && !constants.has(name)) sum += size;
  }
  return sum;
}

function readQueues(table: Readonly<Record<string, unknown>>, member: string): readonly DmaQueue[] {
  return Object.entries(table).map(([name, entry]) => {
    const path = (): string => jsonPath("$.dma_queue", name);
    if (!isTable(entry)) throw shapeError(`a queue is an object, found ${found(entry)}`, { member, path: path() });
    return readQueue(name, { table: entry, member, path });
  });
}

function readQueue(name: string, fields: JsonFields): DmaQueue {
  const owner = ENGINES.find((engine) => engine === fieldOf(fields, "owner"));
  if (owner === undefined) {
    throw fieldError(
      fields,
      "owner",
      `a queue's owner is one of ${ENGINES.join(", ")}, found ${found(fieldOf(fields, "owner"))}`,
    );
  }
  const queues = wholeField(fields, "num_queues", { fallback: 1 });
  if (queues < 1 || queues > 16) throw fieldError(fields, "num_queues", `1 to 16 queues are possible, found ${queues}`);
  const single = fieldOf(fields, "semaphore") === undefined ? [] : [wholeField(fields, "semaphore")];
  const semaphores = wholeListField(fields, "semaphore_set", { fallback: single });
  if (semaphores.length > 32) throw fieldError(fields, "semaphore_set", `at most 32 semaphores, found ${semaphores.length}`);
  return {
    name,
    type: textField(fields, "type") ?? "data",
    owner,
    queues,
    semaphores,
    fabricPath: textField(fields, "fabric_path"),
  };
}

function readReservations(root: JsonFields): readonly Reservation[] | null {
  const list = fieldOf(root, "runtime_statebuffer_reservation");
  if (list === undefined) return null;
  if (!Array.isArray(list)) {
    throw fieldError(root, "runtime_statebuffer_reservation", `an array is expected, found ${found(list)}`);
  }
  return list.map((entry: unknown, index) => {
    const path = (): string => `$.runtime_statebuffer_reservation[${index}]`;
    if (!isTable(entry)) {
      throw shapeError(`a reservation is an object, found ${found(entry)}`, { member: root.member, path: path() });
    }
    const fields: JsonFields = { table: entry, member: root.member, path };
    const type = textField(fields, "type") ?? "";
    if (type !== "evtaccel") throw fieldError(fields, "type", `unknown reservation type ${found(type)}, only evtaccel exists`);
    return {
      type,
      basePartition: wholeField(fields, "base_partition", { fallback: 0 }),
      partitions: wholeField(fields, "partitions"),
      offset: wholeField(fields, "offset"),
      size: wholeField(fields, "size"),
    };
  });
}
