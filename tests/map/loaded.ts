/** Pictures of real models, loaded on a fake device. */
import { openDeviceMemory } from "../../lib/dmem/mod.ts";
import type { DeviceMemory } from "../../lib/dmem/types.ts";
import { openDevice } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import type { Product } from "../../lib/abi/architecture.ts";
import { readNeff } from "../../lib/neff/mod.ts";
import { planNeff } from "../../lib/plan/build.ts";
import { stageCores } from "../../lib/stage/stage_part.ts";
import { stage } from "../../lib/stage/stage.ts";
import { buildPicture } from "../../lib/map/build.ts";
import { deviceInput, variableInputs } from "../../lib/map/from_memory.ts";
import { replayRecord } from "../../lib/map/from_record.ts";
import type { MemoryPicture, VariableInput } from "../../lib/map/model.ts";

/** Loads models on the first cores of a fake device and pictures it. `check` sees the memory while it is loaded. */
export async function loadedPicture(
  files: readonly { readonly path: string; readonly name: string }[], product: Product, options: { readonly lnc?: number; readonly pageBytes?: number } = {},
  check: (memory: DeviceMemory, picture: MemoryPicture) => void = () => {},
): Promise<MemoryPicture> {
  const machine = createFake({ product });
  const device = openDevice({ kernel: machine.process() });
  const memory = openDeviceMemory(device);
  const cores = stageCores(memory, 0, options.lnc ?? 1, { pageBytes: options.pageBytes ?? 2 ** 24 });
  const variables: VariableInput[] = [];
  const models = [];
  for (const { path, name } of files) {
    const neff = await readNeff(path);
    const model = stage(planNeff(neff), neff, cores, { label: { name } });
    models.push(model);
    for (const subgraph of model.subgraphs) variables.push(...variableInputs(subgraph.variables(), { device: 0, model: name, subgraph: subgraph.name }));
  }
  const { device: drawn, allocations } = deviceInput(memory, { name: `fake ${product}` });
  const { events, notes } = replayRecord(memory.ledger.entries(), { device: 0 });
  const picture = buildPicture({
    title: files.map(({ name }) => name).join(" and "), source: `loaded on a fake ${product}, LNC ${options.lnc ?? 1}`,
    devices: [drawn], allocations, variables, events, notes,
  });
  check(memory, picture);
  for (const model of models.reverse()) model.unload();
  memory.close();
  device.close();
  return picture;
}
