/** Names of the driver's memory categories. */

/**
 * By `mem_alloc_category_t`, as sysfs names them; the contiguous scratchpad (19)
 * is shown together with the other (11). `docs/abi.md`, "Category tables".
 */
export const categoryNames: readonly string[] = [
  "uncategorized", "dma_buffers", "tensors", "constants", "application_memory", "driver_memory", "notifications", "uncategorized",
  "model_code", "tensors", "constants", "model_shared_scratchpad", "runtime_memory", "driver_memory", "collectives", "nonshared_scratchpad",
  "notifications", "dma_rings", "dma_rings", "model_shared_scratchpad",
];

/** Categories of host memory in sysfs. */
export const hostCategoryNames: readonly string[] = [
  "uncategorized", "dma_buffers", "tensors", "constants", "application_memory", "driver_memory", "notifications", "dma_rings",
];

/** Categories of device memory in sysfs. */
export const deviceCategoryNames: readonly string[] = [
  "uncategorized", "model_code", "tensors", "constants", "model_shared_scratchpad", "runtime_memory", "driver_memory", "collectives",
  "nonshared_scratchpad", "notifications", "dma_rings",
];
