import type { Allocator, Dmem, DmemList } from "../dmem/types.ts";
import type { MemRefTable } from "../stage/mem_ref_table.ts";
import type { StagedSubgraph } from "../stage/staged_model.ts";
import type { NeuronCore } from "./core.ts";
import type { ScratchpadClaim } from "./shared_slot.ts";
import type { UcodeOfModel } from "./ucode.ts";

/** What one subgraph of a loaded model holds on its core (`model_t`). */
export interface ModelPart {
  /** Handle in the core's database. */
  readonly handle: number;
  /** Name of the model. */
  readonly name: string;
  /** Position of the subgraph in the logical core. */
  readonly index: number;
  /** The core it runs on. */
  readonly core: NeuronCore;
  /** The staged subgraph. */
  readonly staged: StagedSubgraph;
  /** Its variables by id. */
  readonly memRefSet: MemRefTable;
  /** Its MODEL allocator. */
  readonly allocator: Allocator;
  /** What the garbage list frees. */
  readonly tracker: DmemList;
  /** Its claim on the core's scratchpad. */
  readonly scratchpad: ScratchpadClaim;
  /** Instruction blocks. */
  readonly instructions: readonly Dmem[];
  /** Activation and vector engine tables. */
  readonly tables: readonly Dmem[];
  /** DMA rings; sizes are the documented estimate. */
  readonly rings: readonly Dmem[];
  /** Its libraries, on sunda. */
  readonly ucode: UcodeOfModel | undefined;
  /** Whether the model resets the event accelerator (`reset_evt_accel`). */
  readonly resetEvtAccel: boolean;
  /** Whether the model sets the fp8 configuration (`program_fp8_cfg`). */
  readonly programFp8Config: boolean;
  /** Bytes charged to the core before and after the load. */
  readonly memoryUsage: { readonly before: number; readonly after: number };
}
