/** One example of a command: what to type, and what for. */
export type Example = readonly [line: string, what: string];

/**
 * Examples by command, shown by `--help` and in the manual. Every one is run by the tests
 * from the root of the repository.
 */
export const EXAMPLES: Readonly<Record<string, readonly Example[]>> = {
  load: [
    ["load samples/mlp.neff", "on a real device where there is one, else on a fake of the model's target"],
    ["load samples/attention_lnc2.neff --fake trn2 --map", "with a bar per HBM"],
    ["load samples/mlp.neff --core 1 --io plan --json", "for a script"],
  ],
  resolve: [
    ["resolve samples/mlp.neff x+0x1000 --size 64", "64 bytes of x from byte 4096 on"],
    ["resolve samples/attention_lnc2.neff SB --subgraph sg01", "a variable that both subgraphs have"],
  ],
  map: [
    ["map samples/mlp.neff -o map.html", "one page to open in a browser"],
    ["map samples/mlp.neff --json", "the numbers behind it"],
  ],
  explain: [["explain NRT_RESOURCE", "a runtime status by name or number"]],
  inspect: [
    ["inspect samples/mlp.neff", "inputs, constants, scratchpad, code"],
    ["inspect samples/mlp.neff --supported-features 0x80000000000000ff", "against the mask of a runtime's message"],
  ],
  scan: [["scan samples --target cayman --json", "which files of a compile cache are good, and where the others go wrong"]],
  diff: [["diff samples/mlp.neff samples/mlp.neff --exit-code", "whether two builds are the same program"]],
  plan: [["plan samples/every_type.neff --out plan.kbin", "the records as a table, and as a file for C programs"]],
  fit: [
    ["fit samples/mlp.neff --extra kv=64x32MiB --instance inf2.xlarge", "a model beside a KV cache"],
    ["fit samples/mlp.neff samples/mlp.neff --copies 2 --instance trn1.2xlarge --map", "two models on each of two cores"],
    ["fit --need 140GiB --tp 12 --all-instances", "the smallest instance type for so many bytes"],
  ],
  devices: [["devices --fake trn2 --devices 16", "a machine of 16 fake devices"]],
  mem: [["mem --fake trn1 --json", "the counters of a fake machine"]],
  top: [["top --fake trn2 --once --sort used", "one sample, the largest first"]],
  metrics: [["metrics --fake trn2 --once", "what a scrape gets"]],
  copy: [["copy --fake trn2 --size 64KiB..1MiB --mode zero-copy --time 5", "three sizes, one way"]],
  replay: [],
  fake: [["fake --arch trn2 --devices 2 -- neuron-dmem devices", "any program that opens /dev/neuron0"]],
  completion: [["completion bash", "for this shell: source <(neuron-dmem completion bash)"]],
};

/** The examples of a command as text below its help. */
export function exampleText(name: string): string {
  const examples = EXAMPLES[name] ?? [];
  return examples.length === 0 ? "" : ["", "Examples:", ...examples.flatMap(([line, what]) => [`  neuron-dmem ${line}`, `      ${what}`])].join("\n");
}
