import { readDefinition } from "./definition.ts";
import { NeffError, printable } from "./error.ts";
import { bindTensors, readCompiler, readHostGraph } from "./graph.ts";
import { readKelf } from "./kelf.ts";
import type { NeffLimits } from "./limits.ts";
import type { ArchiveFacts, FileVariable, Member, Neff, NeffHeader, Note, Subgraph } from "./model.ts";
import { type PayloadRange, payloadRange } from "./npy.ts";
import { checkReservations } from "./reservation.ts";
import { jsonPath } from "./json_locate.ts";

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
