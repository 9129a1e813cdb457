/**
 * Every command as a table: its arguments, options, examples and schemas. Help, the manual,
 * completion and the types of what a command is given come from here. Nothing heavy is
 * imported, so that `--help` is quick.
 */
import {
  choice, choiceOr, type CommandSpec, DEVICE_OPTIONS, deviceCount, EXPECT_OPTION, flag, FORCE_OPTION, type GivenOf, integer, JSON_OPTION, MACHINE_OPTIONS, many, mask, maybe, milliseconds,
  once, one, oneOf, PRODUCTS, seconds, several, size, sizes, STAGING_OPTIONS, summed, TARGET_NAMES, text, value, valueOr,
} from "./options.ts";

/** The program itself. */
export const PROGRAM = {
  name: "neuron-dmem",
  description: "Device memory of AWS Neuron accelerators: what a compiled model contains, where it goes, and whether it fits.\nEverything but --device works without Neuron hardware.",
  version: flag("-V, --version", "print the version"),
  help: flag("-h, --help", "print this help"),
};

/** Shells that completion is printed for. */
export const SHELLS = ["bash", "zsh", "fish"] as const;

const FILES = "Compiled models:";
const FIT = "Will it fit:";
const LOADING = "Loading:";
const DEVICES = "Devices:";
const MEMORY = "Memory:";
const FAKE = "The fake device:";
const HELP = "Help:";

const INSPECT = {
  group: FILES,
  summary: "what a compiled model, archive or folder contains",
  description: "show what a compiled model contains, or which programs an archive (model.pt) or a folder holds and what they share; needs no device",
  args: { file: one("<file>") },
  options: {
    supportedFeatures: value("--supported-features <mask>", "name the features of the model that a runtime with this mask lacks (exit code 1 when there are any)", mask),
    ...JSON_OPTION,
  },
  examples: [
    ["inspect samples/mlp.neff", "inputs, constants, scratchpad, code"],
    ["inspect samples/mlp.neff --supported-features 0x80000000000000ff", "against the mask of a runtime's message"],
  ],
  schemas: [{ file: "inspect.json", type: "InspectOutput" }, { file: "inspect-deployment.json", type: "InspectDeploymentOutput" }],
} satisfies CommandSpec;

const SCAN = {
  group: FILES,
  summary: "say of each model in a folder whether it is good",
  description: "say of each compiled model in files and folders whether it is good, and where it goes wrong (exit code 1 when any is bad)",
  args: { paths: many("<path...>") },
  options: {
    target: choice("--target <name>", "the models should be for this architecture or product", TARGET_NAMES),
    all: flag("--all", "scan every file of a folder, not only those named like a compiled model"),
    ...JSON_OPTION,
  },
  examples: [["scan samples --target cayman --json", "which files of a compile cache are good, and where the others go wrong"]],
  schemas: [{ file: "scan.json", type: "ScanOutput" }],
} satisfies CommandSpec;

const CACHE = {
  group: FILES,
  summary: "the state of each entry of a compile cache",
  description: "list a compile cache: which entries are good, failed, locked or not whole, and which hold the same program; deletes nothing (exit code 1 when any has failed, is not whole, or has a stale lock)",
  args: { folder: one("<folder>") },
  options: {
    staleAfter: valueOr("--stale-after <minutes>", "a lock that nothing has touched for so long is stale", 60, integer),
    jsonl: { ...flag("--jsonl", "print each entry as a line of JSON as it comes, the totals last"), conflicts: ["json"] },
    ...JSON_OPTION,
  },
  examples: [["cache samples --json", "entries below a folder, for a script"]],
  schemas: [{ file: "cache.json", type: "CacheOutput" }],
} satisfies CommandSpec;

const DIFF = {
  group: FILES,
  summary: "how two compiled models differ",
  description: "show how two compiled models differ, by category and by variable",
  args: { a: one("<a>"), b: one("<b>") },
  options: { exitCode: flag("--exit-code", "end with 1 unless a device gets the same from both"), ...JSON_OPTION },
  examples: [["diff samples/mlp.neff samples/mlp.neff --exit-code", "whether two builds are the same program"]],
  schemas: [{ file: "diff.json", type: "DiffOutput" }],
} satisfies CommandSpec;

const PLAN = {
  group: FILES,
  summary: "the records a model is planned into",
  description: "show the records a compiled model is planned into",
  args: { file: one("<file>") },
  options: { out: text("-o, --out <plan>", "write the plan to a file that C programs can read, - for standard output"), ...FORCE_OPTION, ...JSON_OPTION },
  examples: [["plan samples/every_type.neff --out plan.kbin", "the records as a table, and as a file for C programs"]],
  schemas: [{ file: "plan.json", type: "PlanOutput" }],
} satisfies CommandSpec;

const UNPACK = {
  group: FILES,
  summary: "write the members of a model into a folder",
  description: "write the members of a compiled model, or the NEFFs and metaneffs of an archive (model.pt), into a new folder",
  args: { file: one("<file>"), folder: maybe("[folder]") },
  options: { out: text("-o, --out <folder>", "the folder, instead of the second argument"), ...JSON_OPTION },
  schemas: [{ file: "unpack.json", type: "UnpackOutput" }],
} satisfies CommandSpec;

const PACK = {
  group: FILES,
  summary: "make a model of a folder's files",
  description: "make a compiled model of a folder's files",
  args: { folder: one("<folder>"), file: one("<file>") },
  options: { compression: choice("--compression <form>", "how to store the members (default: as it was unpacked, else gzip)", ["gzip", "stored", "none"]), ...FORCE_OPTION, ...JSON_OPTION },
  schemas: [{ file: "pack.json", type: "PackOutput" }],
} satisfies CommandSpec;

const FIT_COMMAND = {
  group: FIT,
  summary: "tell whether models and tensors fit, and on what",
  description: "tell whether models (NEFFs, or archives such as model.pt) and tensors fit on an instance, by how much, and what to change; needs no device (exit code 1 when they do not fit as things stand)",
  args: { files: many("[file...]") },
  options: {
    instance: once(text("--instance <type>", "instance type, for example trn2.48xlarge (default: a live device, else the smallest type the models are built for)", { conflicts: ["fake", "device", "allInstances"] })),
    allInstances: { ...flag("--all-instances", "answer for every instance type the models are built for"), conflicts: ["fake", "device"] },
    fake: choice("--fake <product>", "answer for a fake device", PRODUCTS, { conflicts: ["device"] }),
    device: value("--device <N>", "answer for the real device /dev/neuronN and what is in use on it", integer),
    lnc: choice("--lnc <size>", "physical cores per logical core (default: what the models need)", ["1", "2"]),
    copies: once(value("--copies <N>", "replicas, each on logical cores of its own: N × --tp cores from 0 on", integer, { conflicts: ["cores"] })),
    cores: once(text("--cores <list>", "logical cores that hold everything, for example 0-3 or 0,2; file@0-3 for one model's")),
    extra: several("--extra <[name=]size>", "memory besides the models, per logical core: 13GiB, kv=64x32MiB; may be repeated"),
    need: summed("--need <size>", "memory a replica needs over its logical cores, without a file; may be repeated, which adds up"),
    tp: once(value("--tp <N>", "logical cores a replica is spread over, tensor parallel (default: the smallest number that fits, for --need without files)", integer)),
    used: several("--used <[hbm=]size>", "what others hold, on every HBM or on one (2=1GiB); may be repeated, which adds up"),
    share: several("--share <equal|none|name...>", "inputs the models share: none, all that are equal in name, shape and type, or some by name (default: none; in an archive, what it says)"),
    scratchpadPage: once(text("--scratchpad-page <MiB|contiguous>", "page size of the scratchpad, a multiple of 512 below 4096 (default: as the runtime's variables say)")),
    profile: flag("--profile", "count profile buffers too"),
    map: flag("--map", "draw each HBM as a bar"),
    fixed: flag("--no-fixed", "leave out what no file tells: runtime and microcode"),
    ...JSON_OPTION,
  },
  examples: [
    ["fit samples/mlp.neff --extra kv=64x32MiB --instance inf2.xlarge", "a model beside a KV cache"],
    ["fit samples/mlp.neff samples/mlp.neff --copies 2 --instance trn1.2xlarge --map", "two models on each of two cores"],
    ["fit samples/mlp.neff@0 samples/mlp.neff@1 --instance trn1.2xlarge", "each model on a core of its own"],
    ["fit --need 140GiB --tp 12 --all-instances", "the smallest instance type for so many bytes"],
  ],
  schemas: [{ file: "fit.json", type: "FitOutput" }, { file: "fit-all-instances.json", type: "FitAllOutput" }],
} satisfies CommandSpec;

const LOAD = {
  group: LOADING,
  summary: "load a model, show where everything went, free it",
  description: "load a compiled model, show where each variable went, free everything",
  args: { file: one("<file>") },
  options: { ...STAGING_OPTIONS, map: flag("--map", "draw the memory of each HBM as a bar"), ...JSON_OPTION },
  examples: [
    ["load samples/mlp.neff", "on a real device where there is one, else on a fake of the model's target"],
    ["load samples/attention_lnc2.neff --fake trn2 --map", "with a bar per HBM"],
    ["load samples/mlp.neff --core 1 --io plan --json", "for a script"],
  ],
  schemas: [{ file: "load.json", type: "LoadOutput" }],
} satisfies CommandSpec;

const RESOLVE = {
  group: LOADING,
  summary: "device address of a variable, or of a byte in it",
  description: "print the device address of a variable, or of a byte inside it; names may begin with -",
  args: { file: one("<file>"), name: one("<name>", "NAME or NAME+OFFSET (offset decimal or 0x…)") },
  options: {
    ...STAGING_OPTIONS,
    subgraph: text("--subgraph <name>", "subgraph to look in (default: the first that has the name)"),
    size: valueOr("--size <N>", "bytes that will be accessed", 0, integer),
    ...JSON_OPTION,
  },
  examples: [
    ["resolve samples/mlp.neff x+0x1000 --size 64", "64 bytes of x from byte 4096 on"],
    ["resolve samples/attention_lnc2.neff SB --subgraph sg01", "a variable that both subgraphs have"],
  ],
  schemas: [{ file: "resolve.json", type: "ResolveOutput" }],
  dashedArguments: true,
} satisfies CommandSpec;

const MAP = {
  group: LOADING,
  summary: "draw device memory as a page and as bars",
  description: "draw device memory as one page and as bars: of models loaded together, of an allocation log, or (without a file) of what a device holds",
  args: { files: many("[file...]") },
  options: {
    ...STAGING_OPTIONS,
    instance: text("--instance <type>", "use a fake of this instance type", { conflicts: ["fake", "device"] }),
    out: text("-o, --out <page>", "HTML file to write, - for standard output (default: map.html, with --json none)"),
    hbmSize: value("--hbm-size <size>", "bytes of each HBM, for a log", size),
    ...FORCE_OPTION,
    ...JSON_OPTION,
  },
  examples: [["map samples/mlp.neff -o map.html", "one page to open in a browser"], ["map samples/mlp.neff --json", "the numbers behind it"]],
  schemas: [{ file: "map.json", type: "MapOutput" }],
} satisfies CommandSpec;

const DEVICES_COMMAND = {
  group: DEVICES,
  summary: "list the Neuron devices of this host",
  description: "list the Neuron devices of this host: cores, memory, neighbours, processes, and what keeps a device from being used",
  args: {},
  options: { ...MACHINE_OPTIONS, dev: text("--dev <folder>", "directory that stands for /dev"), ...JSON_OPTION },
  examples: [["devices --fake trn2 --devices 16", "a machine of 16 fake devices"]],
  schemas: [{ file: "devices.json", type: "DevicesOutput" }],
} satisfies CommandSpec;

const MEM = {
  group: DEVICES,
  summary: "who uses the memory of the devices",
  description: "show who uses the memory of the devices: device, HBM, core, category, and the host's memory beside it",
  args: {},
  options: { ...MACHINE_OPTIONS, ...EXPECT_OPTION, ...JSON_OPTION },
  examples: [["mem --fake trn1 --json", "the counters of a fake machine"]],
  schemas: [{ file: "mem.json", type: "MemOutput" }],
} satisfies CommandSpec;

const TOP = {
  group: DEVICES,
  summary: "watch device memory as it changes",
  description: "watch device memory: device, HBM, core, category and process; keys: q s r / c z p + - arrows",
  args: {},
  options: {
    ...MACHINE_OPTIONS,
    once: flag("--once", "one sample instead of a live view"),
    interval: valueOr("--interval <seconds>", "time between samples", 1, seconds),
    sort: choiceOr("--sort <key>", "order of what is below one parent", ["number", "used", "peak", "rate", "host"], "number"),
    reverse: flag("--reverse", "turn the order round"),
    filter: text("--filter <text>", "only rows with this text"),
    details: flag("--no-details", "leave out categories and processes"),
    zeros: flag("--zeros", "show what has nothing in use too"),
    ...EXPECT_OPTION,
    ...JSON_OPTION,
  },
  examples: [["top --fake trn2 --once --sort used", "one sample, the largest first"]],
  schemas: [{ file: "top.json", type: "TopOutput" }],
} satisfies CommandSpec;

const METRICS = {
  group: DEVICES,
  summary: "serve the memory counters to Prometheus",
  description: "serve the memory counters to Prometheus",
  args: {},
  options: {
    ...MACHINE_OPTIONS,
    listen: valueOr("--listen <address:port>", "where to listen; this machine only unless an address is given", "127.0.0.1:9479", (text) => text),
    once: flag("--once", "print the metrics and end"),
    openmetrics: flag("--openmetrics", "with --once: in the OpenMetrics format"),
    ...EXPECT_OPTION,
  },
  examples: [["metrics --fake trn2 --once", "what a scrape gets"]],
} satisfies CommandSpec;

const COPY = {
  group: MEMORY,
  summary: "measure copies between host and device memory",
  description: "measure copies between host and device memory, beside a plain copy in the same run",
  args: {},
  options: {
    ...DEVICE_OPTIONS,
    size: valueOr("--size <size|range>", "bytes per copy: 1MiB, or a range such as 64KiB..1GiB", sizes("64KiB..64MiB"), sizes, "64KiB..64MiB"),
    mode: choiceOr("--mode <way>", "way of copying", ["all", "staged", "zero-copy", "batch", "mmap"], "all"),
    time: valueOr("--time <milliseconds>", "measure each line for at least this long", 100, integer),
    ...JSON_OPTION,
  },
  examples: [["copy --fake trn2 --size 64KiB..1MiB --mode zero-copy --time 5", "three sizes, one way"]],
  schemas: [{ file: "copy.json", type: "CopyOutput" }],
} satisfies CommandSpec;

const REPLAY = {
  group: MEMORY,
  summary: "replay a log of allocations or requests",
  description: "tell whether the allocations of a log would fit HBMs of another size, or (for a log of fake --record) whether the fake answers as it did (exit code 1 when not)",
  args: { log: one("<log>") },
  options: { hbmSize: value("--hbm-size <size>", "bytes of each HBM, for example 16GiB; needed for allocations", size), ...JSON_OPTION },
  examples: [],
  schemas: [{ file: "replay.json", type: "ReplayOutput" }, { file: "replay-requests.json", type: "ReplayRequestsOutput" }],
} satisfies CommandSpec;

const FAKE_COMMAND = {
  group: FAKE,
  summary: "run any program with fake Neuron devices",
  description: "run a program with fake Neuron devices: its exit code is passed on, 128 + N for signal N",
  usage: "[options] -- <command...>",
  args: { command: many("<command...>") },
  options: {
    arch: choice("--arch <name>", "what the devices are (default: trn2)", TARGET_NAMES),
    product: choice("--product <name>", "the same", TARGET_NAMES, { conflicts: ["arch"] }),
    devices: value("--devices <N|list>", "how many, or which (3,5)", deviceCount),
    driver: text("--driver <version>", "driver whose behaviour is copied: 2.24.7, 2.27, 2.29 …"),
    hbmSize: value("--hbm-size <size>", "bytes of each HBM", size),
    fault: several("--fault <request:nth:action>", "make calls fail: MEM_ALLOC_V2MT64:3:ENOMEM, *:1%:EIO, open:1:die, MEM_BUF_COPY64:*:short, MEM_COPY:2+:20ms; may be repeated"),
    latency: value("--latency <time>", "how long every request takes, for example 200us", milliseconds),
    seed: value("--seed <N>", "for faults by chance", integer),
    record: text("--record <file>", "write a log of all requests, which replay reads"),
    ...FORCE_OPTION,
    sysfs: text("--sysfs <root>", "keep the driver's files below this directory, for mem, top and metrics outside"),
    machine: text("--machine <name>", "share a machine with other programs that name it"),
  },
  examples: [["fake --arch trn2 --devices 2 -- neuron-dmem devices", "any program that opens /dev/neuron0"]],
  passThrough: true,
} satisfies CommandSpec;

const EXPLAIN = {
  group: HELP,
  summary: "explain a runtime status, an errno, or a runtime log",
  description: "explain a runtime status or errno, or (with -) a runtime log on standard input",
  args: { code: one("<code>") },
  options: JSON_OPTION,
  examples: [["explain NRT_RESOURCE", "a runtime status by name or number"]],
  schemas: [{ file: "explain.json", type: "ExplainOutput" }, { file: "explain-log.json", type: "ExplainLogOutput" }],
} satisfies CommandSpec;

const COMPLETION = {
  group: HELP,
  summary: "print a completion script for a shell",
  description: "print a completion script for a shell: source <(neuron-dmem completion bash)",
  args: { shell: oneOf("<shell>", SHELLS) },
  options: {},
  examples: [["completion bash", "for this shell: source <(neuron-dmem completion bash)"]],
} satisfies CommandSpec;

/** The commands, in the order of the help. */
export const COMMANDS = {
  inspect: INSPECT, scan: SCAN, cache: CACHE, diff: DIFF, plan: PLAN, unpack: UNPACK, pack: PACK, fit: FIT_COMMAND, load: LOAD, resolve: RESOLVE, map: MAP, devices: DEVICES_COMMAND,
  mem: MEM, top: TOP, metrics: METRICS, copy: COPY, replay: REPLAY, fake: FAKE_COMMAND, explain: EXPLAIN, completion: COMPLETION,
} satisfies Readonly<Record<string, CommandSpec>>;

/** Name of a command. */
export type CommandName = keyof typeof COMMANDS;

/** What a command is given: its arguments and options by name. */
export type Given<Name extends CommandName> = GivenOf<(typeof COMMANDS)[Name]>;

/** The names, in the order of the help. */
export const COMMAND_NAMES: readonly CommandName[] = Object.keys(COMMANDS).filter((name): name is CommandName => name in COMMANDS);
