/** Pictures of device memory: build one from plain data, check it, write it as one HTML file. `docs/map.md`. */
export { buildPicture } from "./build.ts";
export { categories, type Category, type CategoryKey, categoryOf, categoryOfUsage } from "./categories.ts";
export { checkPicture } from "./check.ts";
export { chunkInputs, deviceInput, hbmInputs, type PlacedInput, variableInputs } from "./from_memory.ts";
export { droppedInDump, entriesOfLog, type RecordEntry, type Replayed, replayRecord } from "./from_record.ts";
export { pictureHtml } from "./html.ts";
export type { AllocationInput, DeviceInput, HbmInput, PictureInput, VariableInput } from "./model.ts";
export type {
  HbmSums, MemoryPicture, Peak, PictureDevice, PictureEvent, PictureHbm, PictureHost, PicturePool, PictureRegion, PictureSums, PictureTotals, PictureVariable,
  PoolKind, RegionKind, UnplacedVariable,
} from "./model.ts";
export { type OwnerNode, ownerTree, treeBytes } from "./totals.ts";
export { drawBars, type BarOptions } from "./bars.ts";
