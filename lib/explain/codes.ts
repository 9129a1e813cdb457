import { NrtStatus } from "../abi/runtime_dmem.ts";

/** What a result code or errno means, and what to do about it. */
export interface CodeExplanation {
  /** The number. */
  readonly code: number;
  /** Its name, for example `NRT_RESOURCE`. */
  readonly name: string;
  /** `nrt` for a runtime status, `errno` for a driver or kernel error. */
  readonly kind: "nrt" | "errno";
  /** One sentence: what it says. */
  readonly meaning: string;
  /** Usual causes, the likeliest first. */
  readonly causes: readonly string[];
  /** What to try, in order. */
  readonly advice: readonly string[];
}

type Text = readonly [meaning: string, causes: readonly string[], advice: readonly string[]];

const NRT: Readonly<Record<string, Text>> = {
  SUCCESS: ["The call succeeded.", [], []],
  FAILURE: ["Non-specific failure: the cause is only in the log lines before it.", ["the driver refused a request for a reason other than lack of memory"], ["Feed the whole log to `neuron-dmem explain -`."]],
  INVALID: ["The arguments or the compiled model are invalid.", ["a NEFF that is empty, truncated, from another compiler generation, or for another architecture", "an offset or size outside a tensor"], ["Run `neuron-dmem scan` on the compile cache and `neuron-dmem inspect` on the file."]],
  INVALID_HANDLE: ["A handle names nothing.", ["a model or tensor was unloaded before the call"], ["Keep the owner alive as long as its parts are used."]],
  RESOURCE: ["A resource is exhausted; on load and tensor allocation nearly always device memory.", ["the HBM of the core is full", "DMA rings ran out (\"No more pages for ring type\")", "too many scratchpad pages"], ["Run `neuron-dmem fit FILE --instance TYPE` to see what does not fit.", "Read the usage table in the log: the largest column is where to save."]],
  TIMEOUT: ["The device did not answer in time.", ["a hung execution, or another process keeping the engine busy"], ["Check `dmesg` for driver messages; reset the device when nobody uses it."]],
  HW_ERROR: ["The hardware reported an error.", ["an uncorrectable memory or engine error"], ["Look at stats/hardware in sysfs; stop and start the instance to move to another host."]],
  QUEUE_FULL: ["The execution queue is full.", ["more asynchronous executions in flight than the queue holds"], ["Wait for completions before submitting more."]],
  LOAD_NOT_ENOUGH_NC: ["The model needs more NeuronCores than are available.", ["NEURON_RT_VISIBLE_CORES or NUM_CORES leaves too few", "another process owns the cores"], ["Compare the model's logical core size with NEURON_LOGICAL_NC_CONFIG.", "End the process that holds the cores."]],
  UNSUPPORTED_NEFF_VERSION: ["The installed runtime is older than the compiler that made the NEFF.", ["the NEFF uses a feature bit the runtime does not know"], ["Upgrade the runtime, or compile with a matching compiler.", "`neuron-dmem inspect FILE --supported-features MASK` names the missing features."]],
  FAIL_HOST_MEM_ALLOC: ["Host memory for DMA could not be allocated; HBM is not the problem.", ["too little free host memory (page cache counts as used for this)", "a contiguous block of the size does not exist"], ["Free host memory or drop caches.", "Prefer device tensors over host tensors."]],
  UNINITIALIZED: ["The runtime was not initialised.", ["a call before nrt_init, or after a failed one"], ["Look for the first error: this one is only a consequence."]],
  CLOSED: ["The runtime was already closed.", ["tensors or models outlived nrt_close"], ["Free them before closing."]],
  QUEUE_EMPTY: ["Nothing is queued.", [], []],
  EXEC_UNIT_UNRECOVERABLE: ["The execution unit cannot recover.", ["an earlier hardware or DMA error"], ["Reload the models after a reset."]],
  EXEC_BAD_INPUT: ["An execution was given invalid inputs.", ["a tensor smaller than its variable, or not bound"], ["Compare tensor sizes with `neuron-dmem inspect FILE`."]],
  EXEC_COMPLETED_WITH_NUM_ERR: ["The execution finished with numerical errors.", ["NaN or infinity in a result"], ["Check inputs and weights."]],
  EXEC_COMPLETED_WITH_ERR: ["The execution finished with errors.", [], ["The log lines before it tell the engine."]],
  EXEC_NC_BUSY: ["The NeuronCore is busy.", ["another model is executing on it"], ["Queue the executions of one core."]],
  EXEC_OOB: ["An execution accessed memory out of bounds.", ["an index input outside its table"], ["Check the values of index inputs."]],
  COLL_PENDING: ["A collective operation is still pending.", [], ["Wait for the other ranks."]],
  EXEC_HW_ERR_COLLECTIVES: ["A collective operation failed in hardware.", ["a peer failed first"], ["Look at the log of the rank that failed first."]],
  EXEC_HW_ERR_HBM_UE: ["HBM has an uncorrectable error.", ["defective memory"], ["Stop and start the instance to move to another host."]],
  EXEC_HW_ERR_NC_UE: ["On-chip memory has an uncorrectable error.", ["defective memory"], ["Stop and start the instance to move to another host."]],
  EXEC_HW_ERR_DMA_ABORT: ["A DMA engine aborted.", ["an access to an address that is not mapped", "memory freed while in use"], ["Check that tensors live until their execution ends."]],
  EXEC_SW_NQ_OVERFLOW: ["A notification queue overflowed.", ["notifications were not consumed in time"], ["Enlarge the queue, or profile less."]],
  EXEC_HW_ERR_REPAIRABLE_HBM_UE: ["HBM has an uncorrectable error that a reset can repair.", ["defective rows that have spares"], ["Reset the device."]],
  NETWORK_PROXY_FAILURE: ["The network proxy failed.", ["a peer or the network went away"], ["Check the other ranks."]],
};

const ERRNO: Readonly<Record<string, readonly [number, ...Text]>> = {
  EPERM: [1, "The driver did not finish a transfer in time (before 2.27), or an mmap had the wrong length.", ["a DMA time-out", "mmap of a length other than the whole chunk"], ["Map exactly the rounded size of one allocation."]],
  ENOENT: [2, "No such device node, handle (driver 2.29 and later) or datastore.", ["the driver is not loaded, or the node was not given to the container", "a handle that was freed"], ["`neuron-dmem devices` tells which."]],
  EINTR: [4, "A signal arrived while waiting for a device reset.", [], ["Try again."]],
  E2BIG: [7, "A core index, or (driver 2.29 and later) offset + size, is out of range.", [], ["Check the offset and size against the allocation."]],
  EAGAIN: [11, "The buffer for the list of memory chunks was too small.", ["chunks were allocated meanwhile"], ["Ask again with the number that came back."]],
  ENOMEM: [12, "No memory: HBM for device requests, host memory for host requests.", ["the HBM is full or fragmented at the asked alignment", "host memory above 4 MiB in one piece"], ["`neuron-dmem mem` shows who holds what."]],
  EACCES: [13, "Permission denied, or the process is not attached to the device.", ["the user is not in the group of /dev/neuronN", "a descriptor was duplicated and closed, which detaches the process"], ["Add the user to the group, or open the device again."]],
  EFAULT: [14, "A pointer in the request is not valid.", [], ["Report it: a library should not let this happen."]],
  EBUSY: [16, "All 16 process slots of the device are taken, or a core is marked by another process.", ["other processes, perhaps left over from a killed pod"], ["`neuron-dmem devices` lists the processes."]],
  ENODEV: [19, "The device is gone or was never there.", ["the driver was unloaded, or the device failed"], ["Reload the module; check `dmesg`."]],
  EINVAL: [22, "The driver does not know the request or refuses its arguments.", ["an older driver than the library expects", "a bad handle, or offset + size beyond the allocation (before 2.29)"], ["Compare /sys/module/neuron/version with the runtime's requirements."]],
  ENOTTY: [25, "The file is not a Neuron device.", ["a regular file or another device under the name"], ["Check what /dev/neuronN is: `ls -l`."]],
  ETIMEDOUT: [110, "The driver did not finish a transfer in time (2.27 and later).", [], ["Check `dmesg`; the device may need a reset."]],
  EALREADY: [114, "The write lock of the model is already held by this process.", [], ["Treat it as success."]],
  ENOTSUPP: [524, "The device does not support the request.", ["an architecture without the feature"], []],
};

/**
 * Explains a code: `4`, `NRT_RESOURCE`, `RESOURCE`, `ENOMEM`, `-12`. A bare number is a
 * runtime status; a negative one, as kernels return it, and one that is no status, an errno.
 * Undefined for one that does not exist.
 */
export function explainCode(text: string): CodeExplanation | undefined {
  const word = text.trim().toUpperCase().replace(/^NRT_/, "");
  const number = /^-?\d+$/.test(word) ? Number(word) : undefined;
  const isStatus = number !== undefined && Object.values(NrtStatus).some((value) => value === number);
  const named = number === undefined || isStatus ? word : Object.keys(ERRNO).find((name) => ERRNO[name]![0] === Math.abs(number)) ?? word;
  const errno = ERRNO[named];
  if (errno !== undefined) return { code: errno[0], name: named, kind: "errno", meaning: errno[1], causes: errno[2], advice: errno[3] };
  const entry = Object.entries(NrtStatus).find(([name, value]) => name.replace(/^NRT_/, "") === word || String(value) === word);
  if (entry === undefined) return undefined;
  const name = entry[0].replace(/^NRT_/, "");
  const [meaning, causes, advice] = NRT[name] ?? ["A runtime status.", [], []];
  return { code: entry[1] as number, name: `NRT_${name}`, kind: "nrt", meaning, causes, advice };
}

/** Every code that can be explained, for completions and docs. */
export function explainableCodes(): readonly string[] {
  return [...Object.keys(NrtStatus).map((name) => `NRT_${name.replace(/^NRT_/, "")}`), ...Object.keys(ERRNO)];
}
