import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { buildNeff } from "../../lib/neff_write/mod.ts";
import { INSTANCES } from "../../lib/abi/architecture.ts";
import type { FitAllReport, FitReport } from "../../lib/cli/text/fit_report.ts";
import { command } from "../support/cli.ts";
import { corpusPath, skipWithoutCorpus } from "../support/corpus.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-fit-"));
after(() => rmSync(folder, { recursive: true }));
const [MIB, GIB] = [2 ** 20, 2 ** 30];
const MODEL = "samples/mlp.neff";

/** Asks, whatever the answer; the exit code must go with it. */
async function ask(...argv: readonly string[]): Promise<FitReport> {
  const { code, out, err } = await command("fit", ...argv, "--json");
  assert.notEqual(out, "", err);
  const report = JSON.parse(out) as FitReport;
  const borrows = report.verdict === "fits-only-by" && report.shortage === null && report.hbms.some(({ spilledBytes }) => spilledBytes > 0);
  const fits = report.verdict === "fits" || borrows;
  assert.equal(code, fits ? 0 : 1, argv.join(" "));
  return report;
}

function line(report: FitReport, name: string): number | undefined {
  return report.hbms[0]?.lines.find((one) => one.name === name)?.bytes;
}

// R01
test("fit says that others fill the core's share of the device, by how much, and what is the first without room", async () => {
  const full = await ask(MODEL, "--instance", "trn1.2xlarge", "--used", "15.855GB");
  assert.equal(full.verdict, "does-not-fit");
  assert.equal(line(full, "used by others"), Math.round(15.855 * GIB));
  assert.equal(full.hbms[0]?.limitBytes, 16 * GIB);
  assert.ok(full.margin < 0);
  assert.notEqual(full.shortage?.name, undefined);
  assert.equal((await ask(MODEL, "--instance", "trn1.2xlarge", "--used", "15.0GB")).verdict, "fits");
  const { out } = await command("fit", MODEL, "--instance", "trn1.2xlarge", "--used", "15.855GB");
  assert.match(out, /^does not fit on trn1\.2xlarge, short of /);
  assert.match(out, /^first without room: /m);
});

// R02
test("fit counts memory besides the models, in pieces and under a name", async () => {
  const report = await ask(MODEL, "--extra", "13GiB", "--extra", "kv=64x32MiB", "--instance", "inf2.xlarge", "--no-fixed");
  assert.equal(line(report, "extra"), 15 * GIB);
  const more = await ask(MODEL, "--extra", "13GiB", "--extra", "kv=96x32MiB", "--instance", "inf2.xlarge");
  assert.equal(more.verdict, "does-not-fit");
  assert.deepEqual([more.shortage?.what, more.shortage?.name, more.shortage?.bytes], ["extra", "kv", 32 * MIB]);
});

// R05
test("fit tells a need that only fits by another core's region of an inf1 from one that does not fit", async () => {
  const alone = await ask("--instance", "inf1.xlarge", "--need", "3GiB");
  assert.equal(alone.verdict, "fits-only-by");
  assert.match(alone.onlyBy ?? "", /other cores' regions/);
  assert.equal(alone.hbms[0]?.spilledBytes, GIB);
  const crowded = await ask("--instance", "inf1.xlarge", "--need", "3GiB", "--used", "2GiB", "--used", "0=0");
  assert.equal(crowded.verdict, "does-not-fit");
});

// R08
test("fit computes the scratchpad of both modes and says which it assumed", async () => {
  const model = (name: string, sizes: readonly number[]): string => {
    const file = join(folder, name);
    let offset = 0;
    const virtual = sizes.map((size, index) => {
      const variable = { name: `v${index}`, type: "virtual", size, offset } as const;
      offset += size;
      return variable;
    });
    const io = [{ name: "in", type: "input", size: 64 }, { name: "out", type: "output", size: 64 }] as const;
    writeFileSync(file, buildNeff({ target: "sunda", subgraphs: [{ variables: [{ name: "SB", type: "state-buffer" }, ...io, ...virtual] }] }));
    return file;
  };
  const files = [model("a.neff", [512 * MIB, 1024 * MIB]), model("b.neff", [100 * MIB, 1536 * MIB])];
  const paged = await ask(...files, "--instance", "trn1.2xlarge", "--scratchpad-page", "512");
  assert.deepEqual([line(paged, "scratchpad"), line(paged, "private scratchpad")], [2048 * MIB, 2560 * MIB]);
  assert.match(paged.notes.join(" "), /paged, pages of 512 MiB/);
  const large = await ask(...files, "--instance", "trn1.2xlarge", "--scratchpad-page", "2048");
  assert.deepEqual([line(large, "scratchpad"), line(large, "private scratchpad")], [2048 * MIB, undefined]);
  const contiguous = await ask(...files, "--instance", "trn1.2xlarge", "--scratchpad-page", "contiguous");
  assert.equal(line(contiguous, "private scratchpad"), undefined);
  assert.match(contiguous.notes.join(" "), /contiguous/);
});

// R11
test("fit does not wrap a tensor of 4 GiB and says what it needs", async () => {
  const file = join(folder, "large.neff");
  writeFileSync(file, buildNeff({ target: "sunda", subgraphs: [{ variables: [
    { name: "SB", type: "state-buffer" }, { name: "in", type: "input", size: 4 * GIB }, { name: "out", type: "output", size: 64 },
  ] }] }));
  const report = await ask(file, "--instance", "trn1.2xlarge");
  assert.equal(line(report, "tensors"), 4 * GIB + 64);
  assert.match(report.notes.join(" "), /large-tensor/);
});

// R13
test("fit --need finds the smallest instance type without a file", async () => {
  const { code, out } = await command("fit", "--need", "140GiB", "--tp", "12", "--all-instances", "--json");
  assert.equal(code, 0);
  const report = JSON.parse(out) as FitAllReport;
  assert.deepEqual(new Set(report.answers.map(({ instance }) => instance)), new Set(INSTANCES.map(({ name }) => name)));
  const fitting = report.answers.filter(({ verdict }) => verdict === "fits").map(({ instance }) => instance);
  assert.equal(report.smallest, fitting[0]);
  for (const { instance, verdict, obstacle, margin } of report.answers) {
    if (verdict === "fits") assert.ok(margin >= 0, instance);
    else assert.ok(obstacle !== null || margin < 0, instance);
  }
  // 12 logical cores of 16 GiB each hold 140 GiB; one device of any type does not.
  assert.ok(fitting.includes("inf2.24xlarge"));
  assert.ok(!fitting.includes("inf2.xlarge") && !fitting.includes("trn2.3xlarge"));
  const text = (await command("fit", "--need", "140GiB", "--tp", "12", "--all-instances")).out;
  assert.match(text, /^instance +memory +fits +LNC +margin +why$/m);
  assert.match(text, /^inf2\.24xlarge +192 GiB +yes +1 +\d/m);
  assert.match(text, /^note \(inf2\.24xlarge\): --need is what you say: .* come on top of it/m);
  assert.equal((await command("fit", "--need", "8TiB", "--all-instances")).code, 1);
});

// R15
test("fit names target and device of a model that is built for another one, and the instance it would fit", { skip: skipWithoutCorpus }, async () => {
  const report = await ask(corpusPath("neff/sunda-lnc1-ncc2.18-stream_fd1k.neff"), "--fake", "trn2");
  assert.equal(report.verdict, "does-not-fit");
  assert.equal(report.obstacle, "sunda-lnc1-ncc2.18-stream_fd1k.neff is built for sunda, the device is cayman (fake trn2)");
});

// R27
test("fit knows the device memory of inf1.2xlarge, which is 8 GiB, and a live device wins over the table", async () => {
  const report = await ask("--need", "8GiB", "--tp", "4", "--instance", "inf1.2xlarge");
  assert.equal(report.hbms.reduce((sum, { limitBytes }) => sum + limitBytes, 0), 8 * GIB);
  assert.match(report.source, /Inf1/);
  const live = await ask("--need", "1GiB", "--fake", "inf2");
  assert.equal(live.source, "live device");
  assert.equal(live.instance, "fake inf2");
});

test("fit counts copies on the HBMs they share", async () => {
  const one = await ask(MODEL, "--instance", "trn1.2xlarge");
  const two = await ask(MODEL, "--instance", "trn1.2xlarge", "--copies", "2");
  assert.deepEqual([one.hbms.length, two.hbms.length, two.logicalCores], [1, 2, [0, 1]]);
  assert.deepEqual((await ask(MODEL, "--instance", "trn1.32xlarge", "--cores", "0,4-5")).logicalCores, [0, 4, 5]);
  assert.match((await ask(MODEL, "--instance", "trn1.2xlarge", "--copies", "3")).obstacle ?? "", /logical core 2/);
  const twice = await ask(MODEL, MODEL, "--instance", "trn1.2xlarge");
  assert.equal(line(twice, "scratchpad"), line(one, "scratchpad"));
  assert.equal(line(twice, "constants"), 2 * (line(one, "constants") ?? 0));
});

test("questions that make no sense are a wrong usage with a hint", async () => {
  const wrong = [
    [], ["--need", "much"], [MODEL, "--instance", "trn9.large"], [MODEL, "--cores", "3-1"], [MODEL, "--cores", "a"], [MODEL, "--extra", "=3x"],
    [MODEL, "--used", "lots"], [MODEL, "--scratchpad-page", "big"], [MODEL, "--scratchpad-page", "0"], [MODEL, "--lnc", "3"], [MODEL, "--copies", "0"], [MODEL, "--copies", "2", "--cores", "0"],
    [MODEL, "--instance", "trn1.2xlarge", "--all-instances"],
  ];
  for (const argv of wrong) {
    const { code, err } = await command("fit", ...argv);
    assert.equal(code, 2, argv.join(" "));
    assert.match(err, /^error: /);
  }
  assert.equal((await command("fit", "no/such.neff")).code, 3);
});

test("what --used says several times adds up, and what is not there is a wrong usage", async () => {
  const report = await ask("--instance", "trn2.48xlarge", "--lnc", "1", "--cores", "4", "--extra", "4GB", "--used", "2=20.094GB", "--used", "2=96.285MB");
  assert.deepEqual([report.verdict, line(report, "used by others")], ["does-not-fit", Math.round(20.094 * GIB) + Math.round(96.285 * MIB)]);
  const wrong = [["--used", "7=15GB"], ["--cores", "5"], ["--lnc", "2"], ["--scratchpad-page", "700"], ["--scratchpad-page", "4096"], ["--share", "x"], ["--tp", "0"]];
  for (const argv of wrong) {
    const { code, err } = await command("fit", MODEL, "--instance", "trn1.2xlarge", ...argv);
    assert.deepEqual([code, err.startsWith("error: Cannot ")], [2, true], `${argv.join(" ")}: ${err}`);
  }
});

test("an option of a question that can be given once is refused when it is given twice; needs add up", async () => {
  for (const [option, first, second] of [["--cores", "0", "1"], ["--copies", "1", "2"], ["--tp", "2", "1"], ["--instance", "trn1.2xlarge", "trn1.32xlarge"], ["--scratchpad-page", "512", "1024"]] as const) {
    const { code, err } = await command("fit", "--need", "1GiB", option, first, option, second);
    assert.deepEqual([code, /can be given once/.test(err)], [2, true], option);
  }
  assert.equal(line(await ask("--need", "2GiB", "--need", "1GiB", "--tp", "1", "--instance", "trn1.2xlarge"), "extra"), 3 * GIB);
});

test("fit reads the runtime's variables as load does, and refuses what load refuses", async () => {
  const question = ["--instance", "trn2.48xlarge", "--extra", "1GiB"];
  const withEnv = async (env: Record<string, string>, ...argv: readonly string[]) => {
    Object.assign(process.env, env);
    try {
      return await command("fit", ...question, ...argv, "--json");
    } finally {
      for (const name of Object.keys(env)) delete process.env[name];
    }
  };
  const answer = async (env: Record<string, string>, ...argv: readonly string[]) => JSON.parse((await withEnv(env, ...argv)).out) as FitReport;
  assert.equal((await answer({ NEURON_LOGICAL_NC_CONFIG: "1" })).lnc, 1);
  assert.equal((await answer({ NEURON_RT_VIRTUAL_CORE_SIZE: "1" })).lnc, 1);
  assert.deepEqual((await answer({ NEURON_RT_VISIBLE_CORES: "12-15" }, "--copies", "2")).logicalCores, [12, 13]);
  assert.equal((await answer({ NEURON_SCRATCHPAD_PAGE_SIZE: "1024", NEURON_RT_CONTIGUOUS_SCRATCHPAD: "0" })).scratchpad.pageBytes, GIB);
  for (const env of [{ NEURON_LOGICAL_NC_CONFIG: "x" }, { NEURON_LOGICAL_NC_CONFIG: "3" }, { NEURON_SCRATCHPAD_PAGE_SIZE: "700" }, { NEURON_RT_VISIBLE_CORES: "3-1" }, { NEURON_RT_CONTIGUOUS_SCRATCHPAD: "maybe" }]) {
    assert.equal((await withEnv(env)).code, 2, JSON.stringify(env));
  }
});

test("load and fit agree under every setting of the runtime's variables: both refuse, or both take the same pages", async () => {
  const settings: Record<string, string>[] = [
    {}, { NEURON_RT_CONTIGUOUS_SCRATCHPAD: "0" }, { NEURON_RT_CONTIGUOUS_SCRATCHPAD: "1" }, { NEURON_SCRATCHPAD_PAGE_SIZE: "1024" },
    { NEURON_SCRATCHPAD_PAGE_SIZE: "1024", NEURON_RT_CONTIGUOUS_SCRATCHPAD: "0" }, { NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB: "1024", NEURON_RT_CONTIGUOUS_SCRATCHPAD: "0" },
    { NEURON_LOGICAL_NC_CONFIG: "1" }, { NEURON_LOGICAL_NC_CONFIG: "2" }, { NEURON_RT_VIRTUAL_CORE_SIZE: "1" }, { NEURON_LOGICAL_NC_CONFIG: "x" }, { NEURON_SCRATCHPAD_PAGE_SIZE: "700" },
    { NEURON_RT_NUM_CORES: "1" }, { NEURON_RT_NUM_CORES: "3" },
  ];
  for (const env of settings) {
    Object.assign(process.env, env);
    try {
      for (const [file, instance, product] of [[MODEL, "trn1.2xlarge", "trn1"], ["samples/attention_lnc2.neff", "trn2.3xlarge", "trn2"]] as const) {
        // On trn1 the variable has no effect for load, whatever it says; fit does not answer for nonsense.
        if (product === "trn1" && env["NEURON_LOGICAL_NC_CONFIG"] === "x") continue;
        const loaded = await command("load", file, "--fake", product, "--json");
        const predicted = await command("fit", file, "--instance", instance, "--json");
        const what = `${JSON.stringify(env)} ${file}`;
        assert.equal(loaded.code === 0, predicted.code === 0, `${what}: ${loaded.err} ${predicted.err}`);
        if (loaded.code !== 0) continue;
        const { usage: took } = JSON.parse(loaded.out) as { usage: { byUsage: Record<string, number> } };
        const pages = (JSON.parse(predicted.out) as FitReport).cores.reduce((sum, { usage }) => sum + (usage.SCRATCHPAD ?? 0), 0);
        assert.equal(took.byUsage["SCRATCHPAD"], pages, what);
      }
    } finally {
      for (const name of Object.keys(env)) delete process.env[name];
    }
  }
});

test("models of different architectures are told so, also for every instance type", async () => {
  const { code, out } = await command("fit", MODEL, "samples/attention_lnc2.neff", "--all-instances");
  assert.deepEqual([code, out], [1, "mlp.neff is built for sunda and attention_lnc2.neff for cayman: no instance runs both"]);
});

test("models can be given cores of their own behind their names", async () => {
  const report = await ask(`${MODEL}@0-1`, `${MODEL}@3`, "--instance", "trn1.32xlarge");
  assert.deepEqual([report.placements, report.logicalCores, report.files], [[[0, 1], [3]], [0, 1, 3], [MODEL, MODEL]]);
  assert.equal((await command("fit", `${MODEL}@3-1`)).code, 2);
});

test("equal HBMs are one table, cores are ranges, and equal inputs are named with both sums", async () => {
  const { out } = await command("fit", "--need", "48GiB", "--tp", "24", "--instance", "trn1.32xlarge");
  assert.match(out, /^each of 24 HBMs \(devices 0-11 HBM 0 1\), cores 0-23 +size/m);
  assert.equal(out.match(/^extra /gm)?.length, 1);
  const shared = await command("fit", MODEL, MODEL, "--instance", "trn1.2xlarge");
  assert.match(shared.out, /^tensors: .* as counted here, .* if all inputs of equal name, shape and type are shared \(--share equal\): /m);
  const once = await command("fit", MODEL, MODEL, "--instance", "trn1.2xlarge", "--share", "equal");
  assert.match(once.out, /^not counted twice: /m);
});

test("a tight need is not called a fit", async () => {
  const { code, out } = await command("fit", "--need", "168GiB", "--tp", "12", "--instance", "inf2.24xlarge");
  assert.deepEqual([code, out.startsWith("tight on inf2.24xlarge")], [1, true]);
  assert.match(out, /come on top of it/);
});

test("fit prints sources beside the figures on wide terminals and below them on narrow ones", async () => {
  const { out } = await command("fit", MODEL, "--instance", "trn1.2xlarge");
  assert.match(out, /^constants: payload sizes of the definition$/m);
  assert.ok(out.split("\n").every((text) => text.length <= 200));
});
