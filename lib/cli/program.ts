import { Argument, Command, CommanderError, Option, type OutputConfiguration } from "commander";
import { exampleText } from "./examples.ts";
import { ExitCode, reportFailure } from "./failure.ts";
import { deviceCount, deviceOptions, expectOption, integer, jsonOption, machineOptions, mask, milliseconds, PRODUCTS, seconds, several, size, sizes, TARGET_NAMES } from "./options.ts";
import { processTerminal, type Terminal } from "./terminal.ts";
import { VERSION } from "./version.ts";

/** A command's work: it prints through the terminal and returns the exit code (default 0). */
export type Action = (terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>) => Promise<number | void> | number | void;

/**
 * Runs the command line.
 *
 * @param argv arguments without the program's name
 * @returns the exit code: 0 done, 1 the file or the device says no, 2 wrong usage
 */
export async function runCli(argv: readonly string[], terminal: Terminal = processTerminal()): Promise<number> {
  let code: number = ExitCode.OK;
  const program = buildProgram((load) => async (...received: unknown[]) => {
    const command = received.pop() as Command;
    const options = received.pop() as Record<string, unknown>;
    const args = [...command.args];
    code = await (await load())(terminal, args, options) ?? ExitCode.OK;
  }, outputOf(terminal));
  try {
    if (argv.length === 0) {
      program.outputHelp({ error: true });
      return ExitCode.USAGE;
    }
    await program.parseAsync(argv, { from: "user" });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.OK : ExitCode.USAGE;
    return reportFailure(terminal, error);
  }
}

/** Where help and usage errors go, and how wide they may be. */
function outputOf(terminal: Terminal): OutputConfiguration {
  return {
    writeOut: (text) => terminal.print(text.trimEnd()),
    writeErr: (text) => terminal.note(text.trimEnd()),
    getOutHelpWidth: () => terminal.columns,
    getErrHelpWidth: () => terminal.columns,
    getOutHasColors: () => false,
    getErrHasColors: () => false,
  };
}

const HELP_OPTION = "print this help";

/** Wraps a command's module so that it is loaded only when the command runs. */
export type Wrap = (load: () => Promise<Action>) => (...received: unknown[]) => Promise<void>;

/** All commands, their arguments and options. Nothing heavy is imported here, so that `--help` is quick. */
export function buildProgram(wrap: Wrap, output: OutputConfiguration = {}): Command {
  const program = new Command("neuron-dmem")
    .configureOutput(output)
    .description("Device memory of AWS Neuron accelerators: what a compiled model contains, where it goes, and whether it fits.\nEverything but --device works without Neuron hardware.")
    .version(VERSION, "-V, --version", "print the version")
    .helpOption("-h, --help", HELP_OPTION)
    .exitOverride()
    .showHelpAfterError("(--help shows what is possible)")
    .helpCommand(false)
    .enablePositionalOptions()
    .addHelpText("after", "\nExit codes: 0 done, 1 the file or the device says no, 2 wrong usage.");
  program.commandsGroup("Compiled models:");
  addFileCommands(program, wrap);
  program.commandsGroup("Will it fit:");
  addFitCommand(program, wrap);
  program.commandsGroup("Loading:");
  addModelCommands(program, wrap);
  program.commandsGroup("Devices:");
  addHostCommands(program, wrap);
  program.commandsGroup("Memory:");
  addMemoryCommands(program, wrap);
  program.commandsGroup("The fake device:");
  addFakeCommands(program, wrap);
  program.commandsGroup("Help:");
  addHelpCommands(program, wrap);
  for (const command of program.commands) {
    // Names of variables may begin with -h.
    command.helpOption(command.name() === "resolve" ? "--help" : "-h, --help", HELP_OPTION).addHelpText("after", exampleText(command.name()));
  }
  return program;
}

/** Explanations, and what shells need. */
function addHelpCommands(program: Command, wrap: Wrap): void {
  program.command("explain <code>")
    .summary("explain a runtime status, an errno, or a runtime log")
    .description("explain a runtime status or errno, or (with -) a runtime log on standard input")
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./explain.ts")).explain));
  program.command("completion")
    .summary("print a completion script for a shell")
    .description("print a completion script for a shell: source <(neuron-dmem completion bash)")
    .addArgument(new Argument("<shell>").choices(["bash", "zsh", "fish"]))
    .action(wrap(async () => {
      const { completion } = await import("./completion.ts");
      return (terminal, args) => completion(terminal, args, program);
    }));
}

/** Commands that load models on a device. */
function addModelCommands(program: Command, wrap: Wrap): void {
  const staging = (command: Command) => deviceOptions(command)
    .addOption(new Option("--core <N>", "first NeuronCore to load on, device-relative (default: the first this process may use)").argParser(integer))
    .addOption(new Option("--io <how>", "where inputs and outputs go: tensors bound by name, or placed by the plan").choices(["tensors", "plan"]).default("tensors"));
  staging(program.command("load <file>"))
    .summary("load a model, show where everything went, free it")
    .description("load a compiled model, show where each variable went, free everything")
    .option("--map", "draw the memory of each HBM as a bar")
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./load.ts")).load));
  staging(program.command("resolve"))
    .summary("device address of a variable, or of a byte in it")
    .description("print the device address of a variable, or of a byte inside it; names may begin with -")
    .argument("<file>").argument("<name>", "NAME or NAME+OFFSET (offset decimal or 0x…)")
    .allowUnknownOption(true)
    .allowExcessArguments(false)
    .addOption(new Option("--subgraph <name>", "subgraph to look in (default: the first that has the name)"))
    .addOption(new Option("--size <N>", "bytes that will be accessed").argParser(integer).default(0))
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./resolve.ts")).resolve));
  staging(program.command("map [file...]"))
    .summary("draw device memory as a page and as bars")
    .description("draw device memory as one page and as bars: of models loaded together, of an allocation log, or (without a file) of what a device holds")
    .addOption(new Option("--instance <type>", "use a fake of this instance type").conflicts(["fake", "device"]))
    .addOption(new Option("-o, --out <page>", "HTML file to write, - for standard output (default: map.html, with --json none)"))
    .addOption(new Option("--hbm-size <size>", "bytes of each HBM, for a log").argParser(size))
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./map.ts")).map));
}

/** Commands that look at the devices of a host. */
function addHostCommands(program: Command, wrap: Wrap): void {
  machineOptions(program.command("devices"))
    .summary("list the Neuron devices of this host")
    .description("list the Neuron devices of this host: cores, memory, neighbours, processes, and what keeps a device from being used")
    .addOption(new Option("--dev <folder>", "directory that stands for /dev"))
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./devices.ts")).devices));
  machineOptions(program.command("mem"))
    .summary("who uses the memory of the devices")
    .description("show who uses the memory of the devices: device, HBM, core, category, and the host's memory beside it")
    .addOption(expectOption())
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./mem.ts")).mem));
  machineOptions(program.command("top"))
    .summary("watch device memory as it changes")
    .description("watch device memory: device, HBM, core, category and process; keys: q s r / c z p + - arrows")
    .option("--once", "one sample instead of a live view")
    .addOption(new Option("--interval <seconds>", "time between samples").argParser(seconds).default(1))
    .addOption(new Option("--sort <key>", "order of what is below one parent").choices(["number", "used", "peak", "rate", "host"]).default("number"))
    .option("--reverse", "turn the order round")
    .addOption(new Option("--filter <text>", "only rows with this text"))
    .option("--no-details", "leave out categories and processes")
    .option("--zeros", "show what has nothing in use too")
    .addOption(expectOption())
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./top.ts")).top));
  machineOptions(program.command("metrics"))
    .summary("serve the memory counters to Prometheus")
    .description("serve the memory counters to Prometheus")
    .addOption(new Option("--listen <address:port>", "where to listen; this machine only unless an address is given").default("127.0.0.1:9479"))
    .option("--once", "print the metrics and end")
    .option("--openmetrics", "with --once: in the OpenMetrics format")
    .addOption(expectOption())
    .action(wrap(async () => (await import("./metrics.ts")).metrics));
}

/** Whether models and tensors fit. */
function addFitCommand(program: Command, wrap: Wrap): void {
  program.command("fit [file...]")
    .summary("tell whether models and tensors fit, and on what")
    .description("tell whether models and tensors fit on an instance, by how much, and what to change; needs no device (exit code 1 when they do not fit as things stand)")
    .addOption(new Option("--instance <type>", "instance type, for example trn2.48xlarge (default: a live device, else the smallest type the models are built for)").conflicts(["fake", "device", "allInstances"]))
    .addOption(new Option("--all-instances", "answer for every instance type the models are built for").conflicts(["fake", "device"]))
    .addOption(new Option("--fake <product>", "answer for a fake device").choices(PRODUCTS).conflicts("device"))
    .addOption(new Option("--device <N>", "answer for the real device /dev/neuronN and what is in use on it").argParser(integer))
    .addOption(new Option("--lnc <size>", "physical cores per logical core (default: what the models need)").choices(["1", "2"]))
    .addOption(new Option("--copies <N>", "logical cores that hold everything: 0 … N − 1").argParser(integer).conflicts("cores"))
    .addOption(new Option("--cores <list>", "logical cores that hold everything, for example 0-3 or 0,2"))
    .addOption(new Option("--extra <[name=]size>", "memory besides the models, per logical core: 13GiB, kv=64x32MiB; may be repeated").argParser(several))
    .addOption(new Option("--need <size>", "memory needed over all logical cores, without a file").argParser(size))
    .addOption(new Option("--tp <N>", "logical cores --need is spread over (tensor parallel)").argParser(integer))
    .addOption(new Option("--used <[hbm=]size>", "what others hold, on every HBM or on one (2=1GiB); may be repeated").argParser(several))
    .addOption(new Option("--scratchpad-page <MiB|contiguous>", "page size of the scratchpad (default: 512)"))
    .option("--profile", "count profile buffers too")
    .option("--map", "draw each HBM as a bar")
    .option("--no-fixed", "leave out what no file tells: runtime and microcode")
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./fit.ts")).fit));
}

/** Commands about allocating and copying device memory. */
function addMemoryCommands(program: Command, wrap: Wrap): void {
  deviceOptions(program.command("copy"))
    .summary("measure copies between host and device memory")
    .description("measure copies between host and device memory, beside a plain copy in the same run")
    .addOption(new Option("--size <size|range>", "bytes per copy: 1MiB, or a range such as 64KiB..1GiB").argParser(sizes).default(sizes("64KiB..64MiB"), "64KiB..64MiB"))
    .addOption(new Option("--mode <way>", "way of copying").choices(["all", "staged", "zero-copy", "batch", "mmap"]).default("all"))
    .addOption(new Option("--time <milliseconds>", "measure each line for at least this long").argParser(integer).default(100))
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./copy.ts")).copy));
  program.command("replay <log>")
    .summary("replay a log of allocations or requests")
    .description("tell whether the allocations of a log would fit HBMs of another size, or (for a log of fake --record) whether the fake answers as it did (exit code 1 when not)")
    .addOption(new Option("--hbm-size <size>", "bytes of each HBM, for example 16GiB; needed for allocations").argParser(size))
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./replay.ts")).replay));
}

/** Commands around the fake device. */
function addFakeCommands(program: Command, wrap: Wrap): void {
  program.command("fake <command...>")
    .usage("[options] -- <command...>")
    .summary("run any program with fake Neuron devices")
    .description("run a program with fake Neuron devices: its exit code is passed on, 128 + N for signal N")
    .passThroughOptions()
    .addOption(new Option("--arch <name>", "what the devices are (default: trn2)").choices(TARGET_NAMES))
    .addOption(new Option("--product <name>", "the same").choices(TARGET_NAMES).conflicts("arch"))
    .addOption(new Option("--devices <N|list>", "how many, or which (3,5)").argParser(deviceCount))
    .addOption(new Option("--driver <version>", "driver whose behaviour is copied: 2.24.7, 2.27, 2.29 …"))
    .addOption(new Option("--hbm-size <size>", "bytes of each HBM").argParser(size))
    .addOption(new Option("--fault <request:nth:action>", "make calls fail: MEM_ALLOC_V2MT64:3:ENOMEM, *:1%:EIO, open:1:die, MEM_BUF_COPY64:*:short, MEM_COPY:2+:20ms; may be repeated").argParser(several))
    .addOption(new Option("--latency <time>", "how long every request takes, for example 200us").argParser(milliseconds))
    .addOption(new Option("--seed <N>", "for faults by chance").argParser(integer))
    .addOption(new Option("--record <file>", "write a log of all requests, which replay reads"))
    .addOption(new Option("--sysfs <root>", "keep the driver's files below this directory, for mem, top and metrics outside"))
    .addOption(new Option("--machine <name>", "share a machine with other programs that name it"))
    .action(wrap(async () => (await import("./fake.ts")).fake));
}

/** Commands about the files of compiled models; they need no device. */
function addFileCommands(program: Command, wrap: Wrap): void {
  program.command("inspect <file>")
    .summary("what a compiled model contains")
    .description("show what a compiled model contains; needs no device")
    .addOption(new Option("--supported-features <mask>", "name the features of the model that a runtime with this mask lacks (exit code 1 when there are any)").argParser(mask))
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./inspect.ts")).inspect));
  program.command("scan <path...>")
    .summary("say of each model in a folder whether it is good")
    .description("say of each compiled model in files and folders whether it is good, and where it goes wrong (exit code 1 when any is bad)")
    .addOption(new Option("--target <name>", "the models should be for this architecture or product").choices(TARGET_NAMES))
    .option("--all", "scan every file of a folder, not only those named like a compiled model")
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./scan.ts")).scan));
  program.command("diff <a> <b>")
    .summary("how two compiled models differ")
    .description("show how two compiled models differ, by category and by variable")
    .option("--exit-code", "end with 1 unless a device gets the same from both")
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./diff.ts")).diff));
  program.command("plan <file>")
    .summary("the records a model is planned into")
    .description("show the records a compiled model is planned into")
    .option("-o, --out <plan>", "write the plan to a file that C programs can read")
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./plan.ts")).plan));
  program.command("unpack <file> <folder>")
    .summary("write the members of a model into a folder")
    .description("write the members of a compiled model into a new folder")
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./unpack.ts")).unpack));
  program.command("pack <folder> <file>")
    .summary("make a model of a folder's files")
    .description("make a compiled model of a folder's files")
    .addOption(new Option("--compression <form>", "how to store the members (default: as it was unpacked, else gzip)").choices(["gzip", "stored", "none"]))
    .addOption(jsonOption())
    .action(wrap(async () => (await import("./pack.ts")).pack));
}
