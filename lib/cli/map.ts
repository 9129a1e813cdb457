import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { instanceNamed, type Product } from "../abi/architecture.ts";
import { parseAllocationLog } from "../dmem/allocation_log.ts";
import { droppedInDump } from "../map/from_record.ts";
import { pictureHtml } from "../map/html.ts";
import type { MemoryPicture } from "../map/model.ts";
import type { Given } from "./commands.ts";
import { barsText, devicePicture, logPicture, neuronPicture } from "./picture.ts";
import { UsageError } from "./failure.ts";
import { PRODUCTS } from "./options.ts";
import { writeOutput } from "./output.ts";
import { startBar } from "./progress.ts";
import { readText } from "./replay.ts";
import { printJson, type Terminal } from "./terminal.ts";

/**
 * `map FILE…`: a picture of device memory, as one page and as bars: of models loaded on a
 * device, of a recorded log, or (without a file) of what a device holds now.
 */
export async function map(terminal: Terminal, given: Given<"map">): Promise<void> {
  const { json } = given;
  const picture = await pictureOf(terminal, given);
  const out = given.out ?? (json ? null : "map.html");
  if (out === "-") return terminal.print(pictureHtml(picture).trimEnd());
  if (out !== null) await writeOutput(out, pictureHtml(picture), { kind: "page", inputs: given.files, force: given.force });
  if (json) return printJson(terminal, picture);
  terminal.print(barsText(terminal, picture));
  terminal.print(`\n${out} shows every allocation and variable; open it in a browser`);
}

async function pictureOf(terminal: Terminal, given: Given<"map">): Promise<MemoryPicture> {
  const { files, hbmSize } = given;
  const product = productOf(given);
  const [file] = files;
  if (file === undefined) return livePicture(product, given.device);
  if (isLog(file)) {
    if (files.length > 1) throw new UsageError("Cannot draw several logs in one picture", { hint: "Give one log, or compiled models." });
    const text = await readText(file);
    return logPicture(parseAllocationLog(text), {
      title: basename(file), source: `recorded log ${file}`, product, dropped: droppedInDump(text), hbmSize,
    });
  }
  await using progress = await startBar(terminal, { title: "loading", unit: "bytes", quiet: given.json });
  const { openSession } = await import("./session.ts");
  await using session = await openSession(files, { ...given, fake: product, progress });
  progress.stop();
  const heading = { title: files.map((one) => basename(one)).join(" and "), source: `loaded on ${session.device.label}, driver ${session.device.driverVersion}` };
  const picture = neuronPicture(session.neuron, session.loaded.map(({ model }) => model), heading);
  await session.release();
  return picture;
}

/** The product of `--instance` or `--fake`. @throws {UsageError} for an instance without a fake */
function productOf({ instance, fake }: Given<"map">): Product | undefined {
  if (instance === undefined) return fake;
  const product = PRODUCTS.find((name) => instance.startsWith(name));
  if (product !== undefined && instanceNamed(instance) !== undefined) return product;
  throw new UsageError(`Cannot draw instance type "${instance}": it is not in the table, or its models have another format`, { hint: "For example trn2.48xlarge." });
}

async function livePicture(fake: Product | undefined, index = 0): Promise<MemoryPicture> {
  const [{ openDevice }, { openKernel }] = await Promise.all([import("../driver/device.ts"), import("./devices.ts")]);
  using kernel = openKernel({ fake });
  using device = openDevice({ kernel: kernel.kernel, index, access: "readonly" });
  const label = kernel.kernel.kind === "fake" ? `a fake ${device.geometry.product}` : device.path;
  return devicePicture([device], { title: `memory of ${label}`, source: `chunks of all processes, as the driver lists them` });
}

/** Whether a file is a log: its first line that is no comment has the columns of one. */
function isLog(file: string): boolean {
  let head: string;
  try {
    head = file === "-" ? "action," : readFileSync(file).subarray(0, HEAD_BYTES).toString("latin1");
  } catch {
    return false;
  }
  const first = head.split("\n").find((line) => line !== "" && !line.startsWith("#")) ?? "";
  return /(^|,)\s*action\s*(,|$)/.test(first);
}

const HEAD_BYTES = 4096;
