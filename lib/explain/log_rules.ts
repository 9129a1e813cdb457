/** Options of {@linkcode explainLog}. */
export interface ExplainOptions {
  /** Names the features of a mask, for the text about unsupported NEFFs. */
  readonly featureNames?: (mask: bigint) => readonly string[];
}

/** How one kind of log line is recognised and what it means. */
export interface LogRule {
  /** Stable word for programs. */
  readonly cause: string;
  /** Matches the line. */
  readonly pattern: RegExp;
  /** Default `cause`. */
  readonly role?: "cause" | "consequence";
  /** The runtime status that goes with it. */
  readonly status?: number;
  /** What to try. */
  readonly advice: readonly string[];
  /** False to let later rules look at the same line too. */
  readonly last?: boolean;
  /** Turns the match into a sentence and numbers. */
  readonly read: (match: RegExpExecArray, options: ExplainOptions) => { readonly meaning: string; readonly details?: Readonly<Record<string, string | number>> };
}

/** Lines that look alarming and mean nothing for the failure. */
export const HARMLESS: readonly RegExp[] = [
  /file not found cpu\.so in NEFF/,
  /\(Non-FATAL\)/,
  /Notifications not initialized!/,
  /tdrv_destroy\s+TDRV not initialized/,
  /nrt_infodump\s+(-+>8|NRT version|CCOM version|Instance ID|Cluster ID|Kernel|Nodename|Visible cores|Environment)/,
  /Unable to log memory (de)?allocation to NDS/,
  /Failed to add entry to dmem log/,
  /has no evtaccel reservation on SBUF/,
  /\b(INFO|DEBUG|TRACE)\s+(NRT|TDRV|NMGR|ENC|NEFF|KMGR|HAL):/,
];

const SAVE_MEMORY = [
  "Run `neuron-dmem fit FILE --instance TYPE` with every model and tensor that shares the core: it names the first that does not fit.",
  "The largest row of the usage report is where to save: tensors are the caller's (weights, KV cache), shared scratchpad is the compiler's.",
];

/** Every line the explainer knows, most specific first. */
export const LOG_RULES: readonly LogRule[] = [
  {
    cause: "out-of-hbm", status: 4, advice: SAVE_MEMORY,
    pattern: /Failed to allocate ([\d.]+ ?[KMGT]?B)\s+\((?:alignment: ([^,]+), )?usage: ([^)]+)\) on ND ?(\d+):NC ?(\d+)/,
    read: (match) => ({
      meaning: `Device memory is exhausted: ${match[1]} for ${match[3]} could not be allocated on device ${match[4]}, core ${match[5]}.`,
      details: { size: match[1]!, usage: match[3]!, device: Number(match[4]), core: Number(match[5]), ...(match[2] === undefined ? {} : { alignment: match[2] }) },
    }),
  },
  {
    cause: "out-of-hbm", status: 4, advice: SAVE_MEMORY,
    pattern: /Failed to (?:alloc|allocate) DEVICE memory(?:: (\d+)| \((\d+) bytes\))/,
    read: (match) => ({ meaning: `Device memory is exhausted: an allocation of ${match[1] ?? match[2]} bytes failed.`, details: { bytes: Number(match[1] ?? match[2]) } }),
  },
  {
    cause: "out-of-hbm", role: "consequence", status: 4, advice: [],
    pattern: /Failed to allocate (\d+) bytes on (DEVICE|HOST) for tensor (\S+?)\.?$/,
    read: (match) => ({ meaning: `Tensor ${match[3]} of ${match[1]} bytes is the one that did not fit.`, details: { bytes: Number(match[1]), tensor: match[3]! } }),
  },
  {
    cause: "out-of-host-memory", status: 11,
    advice: ["Free host memory: drop the page cache or stop other processes. HBM is not the problem.", "Keep tensors on the device instead of the host."],
    pattern: /Failed to (?:alloc|allocate) HOST memory|NRT_FAIL_HOST_MEM_ALLOC|on HOST for tensor/,
    read: () => ({ meaning: "Host memory for DMA could not be allocated." }),
  },
  {
    cause: "dma-rings-exhausted", status: 4,
    advice: ["The model has very many small descriptors: `neuron-dmem inspect FILE` counts them.", "Compile with aligned layouts; load fewer models per core."],
    pattern: /No more pages for ring type: ?(\d+)/,
    read: (match) => ({ meaning: `DMA rings ran out (ring type ${match[1]}) although device memory may be free.`, details: { ringType: Number(match[1]) } }),
  },
  {
    cause: "scratchpad-pages", status: 4,
    advice: ["Raise NEURON_SCRATCHPAD_PAGE_SIZE (multiple of 512 MB), and compile with the same --hbm-scratchpad-page-size."],
    pattern: /Number of (?:scratchpad|ONE TMPBUF) pages requested exceeded the max.*requested: ?(\d+), max(?: allowed)?: ?(\d+)/,
    read: (match) => ({ meaning: `The scratchpad needs ${match[1]} pages, ${match[2]} are allowed.`, details: { requested: Number(match[1]), allowed: Number(match[2]) } }),
  },
  {
    cause: "scratchpad-ceiling", status: 4, advice: SAVE_MEMORY,
    pattern: /Could not grow contiguous scratchpad beyond (\d+) bytes/,
    read: (match) => ({ meaning: `The contiguous scratchpad cannot grow beyond ${match[1]} bytes: the memory below it is taken.`, details: { bytes: Number(match[1]) } }),
  },
  {
    cause: "unsupported-features", status: 10,
    advice: ["Upgrade the Neuron runtime, or compile with the compiler of the installed release.", "`neuron-dmem inspect FILE --supported-features MASK` names the missing features."],
    pattern: /NEFF version: ([\d.]+), features: (0x[0-9a-f]+) are not supported\.\s+Currently supporting: (0x[0-9a-f]+)/i,
    read: (match, options) => {
      const missing = BigInt(match[2]!) & ~BigInt(match[3]!);
      const names = options.featureNames?.(missing) ?? [];
      return {
        meaning: `The NEFF uses features the runtime does not know: missing 0x${missing.toString(16)}${names.length > 0 ? ` (${names.join(", ")})` : ""}.`,
        details: { version: match[1]!, features: match[2]!, supported: match[3]!, missing: `0x${missing.toString(16)}` },
      };
    },
  },
  {
    cause: "unsupported-version", status: 10, advice: ["Upgrade the Neuron runtime, or compile with an older compiler."],
    pattern: /NEFF version mismatch supported: ([\d.]+) received: ([\d.]+)/,
    read: (match) => ({ meaning: `The runtime reads NEFF ${match[1]}, the file is ${match[2]}.`, details: { supported: match[1]!, received: match[2]! } }),
  },
  {
    cause: "wrong-architecture", status: 2,
    advice: ["Compile for the instance's own architecture; NEURON_RT_ALLOW_LEGACY_NEFF=1 only silences the check.", "`neuron-dmem inspect FILE` shows the target."],
    pattern: /NEURON_RT_ALLOW_LEGACY_NEFF|architecture incompatible|[Ii]nvalid target/,
    read: () => ({ meaning: "The NEFF was compiled for another architecture than the device's." }),
  },
  {
    cause: "damaged-neff", status: 2,
    advice: ["`neuron-dmem scan DIR` finds empty and truncated files in a compile cache; delete them and compile again."],
    pattern: /NEFF is invalid|could be broken or hacked|broken stream|invalid NEFF buffer|neff\.json missing|NEFF file .*not found|\(neff\) is empty/i,
    read: () => ({ meaning: "The NEFF is empty, truncated, or written by a generation the runtime does not read." }),
  },
  {
    cause: "driver-version", status: 1,
    advice: ["Install matching driver and runtime, then reload the module (rmmod neuron; modprobe neuron) or reboot: an upgraded package does not replace a loaded module."],
    pattern: /(?:compat(?:ibility|ible)?[^\n]*?(?:id|version)?[: ]+(\d+))[^\n]*?driver[^\n]*?(\d+)\s*[-–to]+\s*(\d+)|driver version.*(?:not supported|incompatible|mismatch)/i,
    read: (match) => match[1] === undefined
      ? { meaning: "The loaded driver and the runtime do not match." }
      : { meaning: `The runtime speaks interface ${match[1]}, the loaded driver ${match[2]} to ${match[3]}.`, details: { runtime: Number(match[1]), driverMin: Number(match[2]), driverMax: Number(match[3]) } },
  },
  {
    cause: "no-device", status: 1,
    advice: ["Check that the driver is loaded (lsmod | grep neuron) and that /dev/neuron* exist; give them to the container with --device.", "`neuron-dmem devices` tells which of the two it is."],
    pattern: /No neuron devices? (?:available|found)|\/dev\/neuron\d+[^\n]*[Nn]o such file|neuron_devices": null|cannot determine the number of available NeuronCores/,
    read: () => ({ meaning: "No Neuron device is visible to the process." }),
  },
  {
    cause: "no-permission", status: 1,
    advice: ["Run as a user who may open the node, or change its mode (udev rule, `chmod a+rw /dev/neuron*`); a container needs it with --device.", "`neuron-dmem devices` says it for each device."],
    pattern: /\/dev\/neuron(\d+)[^\n]*(?:[Pp]ermission denied|EACCES)/,
    read: (match) => ({ meaning: `The process may not open /dev/neuron${match[1]}.`, details: { device: Number(match[1]) } }),
  },
  {
    cause: "remote-variables", status: 2, advice: ["`neuron-dmem plan FILE` names the variable and the subgraph it refers to; compile again."],
    pattern: /Failed to resolve remote variables for subgraphs (\d+) to (\d+)|Failed to find remote variable/,
    read: () => ({ meaning: "A variable of one subgraph refers to one of another that is not there." }),
  },
  {
    cause: "cores-not-available", status: 1,
    advice: ["Another process owns the cores: end it, or choose others with NEURON_RT_VISIBLE_CORES.", "`neuron-dmem devices` lists the processes."],
    pattern: /Logical Neuron Core\(s\) not available - Requested:(\d+) Available:(\d+)|NERR_RESOURCE_NC/,
    read: (match) => match[1] === undefined
      ? { meaning: "The process asks for more cores than are free." }
      : { meaning: `The process asks for ${match[1]} logical cores, ${match[2]} are free.`, details: { requested: Number(match[1]), available: Number(match[2]) } },
  },
  {
    cause: "visible-cores", status: 2, advice: ["Write NEURON_RT_VISIBLE_CORES as a list of cores and ranges: `0`, `0-3`, `0,2,4-7`."],
    pattern: /Logical Neuron cores are not contiguous|NEURON_RT_VISIBLE_CORES/,
    read: () => ({ meaning: "NEURON_RT_VISIBLE_CORES is not a valid list for this instance." }),
  },
  {
    cause: "not-enough-cores", status: 9, advice: ["Compare the model's LNC (`neuron-dmem inspect`) with NEURON_LOGICAL_NC_CONFIG."],
    pattern: /Insufficient number of pncs, required (\d+), available (\d+)/,
    read: (match) => ({ meaning: `The model needs ${match[1]} physical cores per logical core, ${match[2]} are configured.`, details: { required: Number(match[1]), available: Number(match[2]) } }),
  },
  {
    cause: "topology", status: 2, advice: ["Use a supported number of cores for collectives."],
    pattern: /Unsupported topology\. (Supported number of Neuron Cores is [^.]+)/,
    read: (match) => ({ meaning: `The number of cores does not fit the instance's links: ${match[1]}.` }),
  },
  {
    cause: "collectives", status: 1, advice: ["Compile for the number of ranks the job runs with."],
    pattern: /replica groups \((\d+\/\d+)\) does not have myself (\d+)/,
    read: (match) => ({ meaning: `The model's replica groups do not contain rank ${match[2]}.`, details: { rank: Number(match[2]) } }),
  },
  {
    cause: "uninitialized", role: "consequence", status: 13, advice: [],
    pattern: /NRT uninitialized|TDRV not initialized/,
    read: () => ({ meaning: "A call was made although initialisation had failed." }),
  },
  {
    cause: "load-failed", role: "consequence", advice: [],
    pattern: /Failed to load NN: (.*?), err: (\d+)/,
    read: (match) => ({ meaning: `Loading ${match[1]} ended with status ${match[2]}.`, details: { file: match[1]!, status: Number(match[2]) } }),
  },
  {
    cause: "load-failed", role: "consequence", advice: [],
    pattern: /Failure: (NRT_[A-Z_]+) in (\w+)\(\)|(nrt_\w+) status=(\d+)/,
    read: (match) => ({ meaning: `${match[2] ?? match[3]} ended with ${match[1] ?? `status ${match[4]}`}.`, details: { call: (match[2] ?? match[3])! } }),
  },
];
