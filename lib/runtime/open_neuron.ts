import { type Kernel, linuxKernel } from "../../ffi/kernel.ts";
import { geometries, type Product, productOfTarget, type Target } from "../abi/architecture.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { checkLayers } from "../dmem/layers.ts";
import { discoverDevices, type DiscoveredDevice } from "../driver/discover.ts";
import { createFake, type FakeMachine, type FakeOptions } from "../fake/machine.ts";
import { type ContextOptions, NeuronContext } from "./context.ts";
import type { Environment } from "./environment.ts";
import { NrtError } from "./errors.ts";
import { logicalCoreSize } from "./logical_cores.ts";
import { Neuron } from "./neuron.ts";
import { NUM_CORES, readCoreRequest, VISIBLE_CORES } from "./visible_cores.ts";

/** Variable that asks for a fake instead of a device, as the vendor's runtime has it: `trn2.48xlarge` or just `trn2`. */
const FAKE_INSTANCE_TYPE = "NEURON_RT_FAKE_INSTANCE_TYPE";

/** A fake device: a product, a model's target, or a whole machine. */
export type FakeChoice = Product | Target | "*" | FakeOptions;

/** Options of {@linkcode openNeuron}. */
export interface OpenNeuronOptions extends Omit<ContextOptions, "kernel" | "devices"> {
  /** Use a fake device in this process instead of a real one. */
  readonly fake?: FakeChoice | undefined;
  /** Devices by index: one, several, or all there are. Default: those that hold the cores the environment asks for, else the first. */
  readonly device?: number | readonly number[] | "all" | undefined;
  /** Environment variables, default `process.env`. */
  readonly env?: Environment | undefined;
  /** Another kernel: a process of a fake machine that others use too. */
  readonly kernel?: Kernel | undefined;
}

/**
 * Opens Neuron devices: `/dev/neuron0` where there is one, or a fake.
 *
 * @throws {ArgumentError} for layers that are none
 * @throws {NrtError} NRT_INVALID when there is no device and no fake was asked for, with one line of advice
 * @throws {DeviceOpenError} when a node cannot be opened
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2" });
 * using buffer = neuron.core(0).alloc(4096, { usage: "WEIGHT" });
 */
export function openNeuron(options: OpenNeuronOptions = {}): Neuron {
  if (options.layers !== undefined) checkLayers(options.layers);
  const env = options.env ?? process.env;
  const machine = options.kernel === undefined ? fakeMachine(options, env) : undefined;
  try {
    const kernel = options.kernel ?? machine?.kernel() ?? linuxKernel();
    const devices = chooseDevices(kernel, options, env);
    const context = new NeuronContext({ hbmSize: fakeHbmSize(options), ...options, kernel, devices, env });
    return new Neuron(context, () => {
      machine?.close();
      for (const layer of options.layers ?? []) (layer as Partial<Disposable>)[Symbol.dispose]?.();
    });
  } catch (error) {
    machine?.close();
    throw error;
  }
}

function fakeMachine(options: OpenNeuronOptions, env: Environment): FakeMachine | undefined {
  const { fake } = options;
  if (fake !== undefined) return createFake(typeof fake === "string" ? { product: productOf(fake) } : fake);
  const instance = env[FAKE_INSTANCE_TYPE];
  if (instance === undefined || instance === "" || options.device !== undefined) return undefined;
  const product = (Object.keys(geometries) as Product[]).find((name) => instance.startsWith(name));
  if (product !== undefined) return createFake({ product });
  throw new NrtError(NrtStatus.INVALID, `Cannot use ${FAKE_INSTANCE_TYPE}=${JSON.stringify(instance)}: no such product`, { hint: `It begins with ${Object.keys(geometries).join(", ")}.` });
}

/** The HBM size a fake was asked to have. */
function fakeHbmSize({ fake }: OpenNeuronOptions): number | undefined {
  return typeof fake === "object" ? fake.hbmSize : undefined;
}

/** The product of a product's or target's name; a model for any target gets a trn2. */
function productOf(choice: Exclude<FakeChoice, FakeOptions>): Product {
  if (choice === "*") return "trn2";
  if (choice in geometries) return choice as Product;
  const product = productOfTarget[choice as Target] as Product | undefined;
  if (product !== undefined) return product;
  throw new NrtError(NrtStatus.INVALID, `Cannot make a fake ${JSON.stringify(choice)}: no such product or target`, {
    hint: `Products are ${Object.keys(geometries).join(", ")}, targets ${Object.keys(productOfTarget).join(", ")}.`,
  });
}

function chooseDevices(kernel: Kernel, options: OpenNeuronOptions, env: Environment): readonly number[] {
  const { device } = options;
  if (typeof device === "number") return [device];
  if (device !== undefined && device !== "all") return device;
  const discovery = discoverDevices(kernel, options.sysfs === undefined ? {} : { sysfs: options.sysfs });
  const usable = discovery.devices.filter((one) => one.state === "ok");
  const [first] = usable;
  if (first === undefined) throw noDevice(discovery);
  if (env[VISIBLE_CORES] !== undefined) return devicesOfCores(usable, options, env);
  const asked = device === "all" || kernel.kind === "fake" || env[NUM_CORES] !== undefined;
  return asked ? usable.map((one) => one.index) : [first.index];
}

/** The devices that hold the listed cores; all when none does, so that claiming them says which is missing. */
function devicesOfCores(usable: readonly DiscoveredDevice[], options: OpenNeuronOptions, env: Environment): readonly number[] {
  const { architecture, coresPerDevice } = usable[0]!.geometry!;
  const perDevice = coresPerDevice / logicalCoreSize({ architecture, coresPerDevice, requested: options.lnc, env });
  const wanted = new Set(readCoreRequest(env).cores?.map((core) => Math.floor(core / perDevice)));
  const holding = usable.filter((one) => wanted.has(one.index));
  return (holding.length > 0 ? holding : usable).map((one) => one.index);
}

function noDevice(discovery: ReturnType<typeof discoverDevices>): NrtError {
  const [broken] = discovery.devices;
  const why = broken === undefined
    ? discovery.problem === "module-not-loaded" ? "there is no /dev/neuron node and the kernel module is not loaded" : "there is no /dev/neuron node"
    : `${broken.path} cannot be used (${broken.state})`;
  return new NrtError(NrtStatus.INVALID, `Cannot open a Neuron device: ${why}`, {
    hint: `Without a device, use a fake: openNeuron({ fake: "trn2" }). ${broken?.advice ?? discovery.advice ?? ""}`.trim(),
    details: { problem: discovery.problem ?? null, devices: discovery.devices.map(({ index, state, errno }) => ({ index, state, errno: errno ?? null })) },
  });
}
