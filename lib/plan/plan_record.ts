/** The records of a plan as plain data, for tables and JSON. */
import { readU64 } from "../../ffi/u64.ts";
import {
  BackingBuffer, KbinMemRef, KbinMemRefPtr, KbinMemRefRemote, KbinMemRefVirtual, MrType, type MrTypeName, mrTypeNames,
} from "../abi/runtime_kbin.ts";
import type { DebugMetadata, Payload } from "./mem_ref.ts";
import { type Plan, planDebug, planIds, planName, planPayload, recordAt } from "./plan.ts";

/** One variable of a plan; what a type does not have is null. */
export interface PlanRecord {
  readonly varId: number;
  readonly name: string;
  /** Name of its record type, for example `VIRTUAL_TMP_BUF`. */
  readonly type: MrTypeName;
  /** Number of its record type, 1 … 11. */
  readonly typeNumber: number;
  readonly size: number;
  readonly alignment: number;
  readonly dtype: string | null;
  /** Dimensions up to the first 0. */
  readonly shape: readonly number[];
  /** Where a scratch variable lies: offset in its arena. */
  readonly scratchpad: { readonly offset: number; readonly arena: "local" | "shared" | "sharded" | "main" } | null;
  /** Where the bytes of a constant are. */
  readonly payload: Payload | null;
  /** Variable a pointer points to. */
  readonly pointsTo: { readonly varId: number; readonly io: boolean } | null;
  /** Ids of a list or table. */
  readonly ids: readonly number[] | null;
  /** Variable of another subgraph, by the subgraph's position. */
  readonly remote: { readonly subgraph: number; readonly varId: number } | null;
  /** Print metadata. */
  readonly debug: DebugMetadata | null;
}

const AT = KbinMemRef.offsets;
const MOST_DIMENSIONS = 8;
const ARENAS = Object.fromEntries(Object.entries(BackingBuffer).map(([name, value]) => [value, name.toLowerCase()])) as
  Readonly<Record<number, NonNullable<PlanRecord["scratchpad"]>["arena"]>>;

/** The record of a variable. */
export function planRecord(plan: Plan, varId: number): PlanRecord {
  const { view } = plan;
  const at = recordAt(varId);
  const type = view.getUint32(at + AT.mrType, true);
  const { dtype } = KbinMemRef.over(view, at);
  const virtual = type === MrType.VIRTUAL_TMP_BUF;
  const list = type === MrType.LIST || type === MrType.PTR_TABLE;
  return {
    varId,
    name: planName(plan, varId),
    type: mrTypeNames[type]!,
    typeNumber: type,
    size: readU64(view, at + AT.size),
    alignment: readU64(view, at + AT.alignment),
    dtype: dtype === "" ? null : dtype,
    shape: shapeAt(view, at + AT.shape),
    scratchpad: virtual
      ? { offset: readU64(view, at + KbinMemRefVirtual.offsets.offset), arena: ARENAS[view.getUint32(at + KbinMemRefVirtual.offsets.backingBuf, true)]! }
      : null,
    payload: type === MrType.BUFFER || type === MrType.BUFFER_STAGED ? planPayload(plan, varId) : null,
    pointsTo: type === MrType.PTR
      ? { varId: view.getUint32(at + KbinMemRefPtr.offsets.referencedVarId, true), io: view.getUint8(at + KbinMemRefPtr.offsets.ioRef) !== 0 }
      : null,
    ids: list ? [...planIds(plan, varId)] : null,
    remote: type === MrType.REMOTE
      ? {
        subgraph: view.getUint32(at + KbinMemRefRemote.offsets.remoteVtpbRelSgId, true),
        varId: view.getUint32(at + KbinMemRefRemote.offsets.remoteVarId, true),
      }
      : null,
    debug: planDebug(plan, varId),
  };
}

function shapeAt(view: DataView, at: number): number[] {
  const dimensions = Array.from({ length: MOST_DIMENSIONS }, (_, index) => readU64(view, at + 8 * index));
  const end = dimensions.indexOf(0);
  return end < 0 ? dimensions : dimensions.slice(0, end);
}
