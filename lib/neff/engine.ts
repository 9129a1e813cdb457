import { STATE_BUFFER_BYTES } from "../abi/architecture.ts";
import { INSTRUCTION_BYTES } from "../abi/runtime_kbin.ts";
import * as v from "valibot";
import { NeffError, printable, withFile } from "./error.ts";
import { parseJson } from "./json.ts";
import type { NeffLimits } from "./limits.ts";
import {
  type DmaBlock,
  type DmaEntry,
  type DmaReference,
  type Engine,
  type EngineContents,
  type EngineFile,
  type Member,
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
  textField,
  wholeField,
  wholeListField,
} from "./shape.ts";
import { inDirectory, sizeOfVariable } from "./variable.ts";

/** Where to find an engine's files. */
export interface EngineContext {
  /** Full member name, or null when the definition names none. */
  readonly member: string | null;
  readonly directory: string;
  readonly members: ReadonlyMap<string, Member>;
  readonly limits: NeffLimits;
  /** Name of the file, for errors. */
  readonly file?: string | undefined;
}

const EngineShape = v.looseObject({
  name: v.optional(v.string(), ""),
  instr: v.optional(v.string()),
  dma: v.optional(v.array(v.unknown()), []),
  activation_function_sets: v.optional(v.array(v.string()), []),
  dve_tables: v.optional(v.array(v.looseObject({})), []),
});

const EMPTY: EngineContents = {
  name: "",
  instructionMember: null,
  instructionBytes: 0,
  instructions: 0,
  blocks: [],
  descriptors: 0,
  activationSets: [],
  tables: [],
};

/** An engine file whose content is parsed when it is first looked at: these files can have many megabytes. */
export function readEngine(engine: Engine, context: EngineContext): EngineFile {
  const { member, members } = context;
  const stored = member === null ? undefined : members.get(member);
  let contents: EngineContents | undefined;
  return {
    engine,
    member,
    present: stored !== undefined,
    size: stored?.size ?? 0,
    get contents(): EngineContents {
      return (contents ??= stored === undefined ? EMPTY : readNamed(stored, context));
    },
  };
}

/** The contents; an error names the file too, which nobody else knows any more. */
function readNamed(stored: Member, context: EngineContext): EngineContents {
  try {
    return readContents(stored, context);
  } catch (error) {
    throw error instanceof NeffError && context.file !== undefined ? withFile(error, context.file) : error;
  }
}

function readContents(stored: Member, context: EngineContext): EngineContents {
  const member = stored.name;
  if (stored.bytes === null) {
    throw new NeffError("the engine file was not kept", {
      kind: "limit",
      where: { member },
      hint: 'Read the NEFF with retain: "all".',
    });
  }
  const document = parseJson(stored.bytes, { member, limits: context.limits, duplicates: "ignore" });
  const root = checkShape(EngineShape, document.value, member);
  const instructions = instructionsOf(root.instr, member, context);
  const blocks = root.dma.map((block, index) => readBlock(block, { member, path: () => `$.dma[${index}]` }));
  return {
    name: root.name,
    ...instructions,
    blocks,
    descriptors: blocks.reduce((sum, block) => sum + block.entries.length, 0),
    activationSets: root.activation_function_sets,
    tables: tablesOf(root.dve_tables, context.directory),
  };
}

function instructionsOf(
  fileName: string | undefined,
  member: string,
  context: EngineContext,
): Pick<EngineContents, "instructionMember" | "instructionBytes" | "instructions"> {
  if (fileName === undefined || fileName === "") return { instructionMember: null, instructionBytes: 0, instructions: 0 };
  const instructionMember = inDirectory(context.directory, fileName);
  const stored = context.members.get(instructionMember);
  if (stored === undefined) {
    throw shapeError(`the instructions "${printable(instructionMember)}" are not in the archive`, { member, path: "$.instr" });
  }
  if (stored.size > 0xffff_ffff) {
    throw shapeError(`${stored.size} bytes of instructions, at most ${0xffff_ffff}`, { member, path: "$.instr" });
  }
  return { instructionMember, instructionBytes: stored.size, instructions: Math.floor(stored.size / INSTRUCTION_BYTES) };
}

/** Every `*_table` of the vector engine's table sets. */
function tablesOf(sets: readonly Readonly<Record<string, unknown>>[], directory: string): readonly string[] {
  const named = sets.flatMap((set) =>
    Object.entries(set).filter(([key, value]) => key.endsWith("_table") && typeof value === "string")
  );
  return named.map(([, value]) => inDirectory(directory, value as string));
}

interface Place {
  readonly member: string;
  readonly path: () => string;
}

function placeError(place: Place, reason: string): NeffError {
  return shapeError(reason, { member: place.member, path: place.path() });
}

function readBlock(block: unknown, place: Place): DmaBlock {
  if (!isTable(block)) throw placeError(place, `a DMA block is an object, found ${found(block)}`);
  const fields: JsonFields = { table: block, ...place };
  const desc = fieldOf(fields, "desc") ?? [];
  if (!Array.isArray(desc)) throw fieldError(fields, "desc", `an array is expected, found ${found(desc)}`);
  return {
    id: wholeField(fields, "id"),
    queue: textField(fields, "queue") ?? "",
    semaphore: fieldOf(fields, "semaphore") === undefined ? null : wholeField(fields, "semaphore"),
    event: fieldOf(fields, "event") === undefined ? null : wholeField(fields, "event"),
    entries: desc.map((entry: unknown, index) =>
      readEntry(entry, { member: place.member, path: () => `${place.path()}.desc[${index}]` })
    ),
  };
}

function readEntry(entry: unknown, place: Place): DmaEntry {
  if (!isTable(entry)) throw placeError(place, `a DMA entry is an object, found ${found(entry)}`);
  const fields: JsonFields = { table: entry, ...place };
  const gathered = fieldOf(fields, "from_arr");
  const op = textField(fields, "op") ?? (fieldOf(fields, "transpose_op") === undefined ? "copy" : "transpose");
  return {
    op,
    from: gathered === undefined ? [readReference(fields, "from")] : readGathered(gathered, fields),
    to: [readReference(fields, "to")],
  };
}

function readGathered(list: unknown, fields: JsonFields): readonly DmaReference[] {
  if (!Array.isArray(list) || list.length === 0 || list.length > 16) {
    throw fieldError(fields, "from_arr", `an array of 1 to 16 sources is expected, found ${found(list)}`);
  }
  return list.map((item: unknown, index) => {
    const place: Place = { member: fields.member, path: () => `${fields.path()}.from_arr[${index}]` };
    if (!isTable(item)) throw placeError(place, `a source is an object, found ${found(item)}`);
    return readReference({ table: item, ...place }, "from");
  });
}

/** One side of an entry: `from`, `from_off`, `from_sizes`, `from_steps`, `from_dtype` and the same with `to`. */
function readReference(fields: JsonFields, side: "from" | "to"): DmaReference {
  const variable = textField(fields, side);
  if (variable === null) throw fieldError(fields, side, "a required key is missing");
  const offset = wholeField(fields, `${side}_off`, { fallback: 0 });
  const sizes = wholeListField(fields, `${side}_sizes`, { fallback: [] });
  const steps = wholeListField(fields, `${side}_steps`, { fallback: [] });
  if (sizes.length !== steps.length) throw fieldError(fields, `${side}_steps`, `${sizes.length} sizes and ${steps.length} steps`);
  const extent = extentOf(sizes, steps);
  if (!Number.isSafeInteger(offset + extent)) throw fieldError(fields, `${side}_sizes`, "the range ends beyond 2^53");
  return { variable, offset, sizes, steps, dtype: textField(fields, `${side}_dtype`) ?? "uint8", extent };
}

/** Bytes from the first to behind the last byte touched: Σ (sizes[i] − 1) · steps[i] + 1; 0 when a size is 0. */
export function extentOf(sizes: readonly number[], steps: readonly number[]): number {
  let last = 0;
  for (let i = 0; i < sizes.length; i++) {
    const count = sizes[i] as number;
    if (count === 0) return 0;
    last += (count - 1) * (steps[i] as number);
  }
  return last + 1;
}

/** A reference of a DMA entry together with the variable it names. */
export interface ResolvedReference {
  readonly engine: Engine;
  readonly block: DmaBlock;
  readonly entry: DmaEntry;
  readonly side: "from" | "to";
  readonly reference: DmaReference;
  /** Undefined when the subgraph has no variable of that name. */
  readonly variable: Variable | undefined;
  /** Whether offset and extent lie inside the variable. */
  readonly inside: boolean;
}

/**
 * All references of a subgraph's DMA entries. The range rule: offset + extent ≤ size, the state buffer counting as 0x2000000 bytes.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * const references = [...dmaReferences(neff.subgraphs[0]!)];
 * console.log(references.length, references.every(({ inside }) => inside)); // → 4 true
 */
export function* dmaReferences(subgraph: Subgraph): Generator<ResolvedReference> {
  for (const file of subgraph.engines) {
    for (const block of file.contents.blocks) {
      for (const entry of block.entries) {
        for (const side of ["from", "to"] as const) {
          for (const reference of entry[side]) {
            const variable = subgraph.variables.get(reference.variable);
            const inside = variable !== undefined && reference.offset + reference.extent <= addressableBytes(variable);
            yield { engine: file.engine, block, entry, side, reference, variable, inside };
          }
        }
      }
    }
  }
}

/** Bytes a transfer may address in a variable. A remote one is bounded by its target, which another subgraph knows; the state buffer's size is the bound here. */
export function addressableBytes(variable: Variable): number {
  if (variable.type === "state-buffer" || variable.type === "remote") return STATE_BUFFER_BYTES;
  return sizeOfVariable(variable);
}
