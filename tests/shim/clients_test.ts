// The same session in C, Python, Bun and Deno under the shim and on the fake in this process.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { createFake } from "../../lib/fake/machine.ts";
import { AT, addressOf, allocation, bufferCopy, MemCopy64, MemGetExtendedInfo, Memset64, request, struct } from "./scripts.ts";
import { type Client, compile, localClient, machineOptions, ready, runCaptured, runLocal, runtimeCommand, skipC, skipPython, skipShim } from "./support.ts";
import { ARENA, BASE } from "./interpreter.ts";

const small = 0x5c0000000;
const large = 0x1000000;
const MiB = 2 ** 20;

/** Allocates, copies in and out, maps, looks things up, frees: what a client does. */
const session: readonly string[] = [
  "g",
  "t /dev/neuron0", "t /dev/neuron1", "t /dev/neuron2",
  "o 0 /dev/neuron0 2", "o 1 /dev/neuron1 2", "o 2 /dev/neuron0 1", "o 3 /dev/neuron7 2",
  ...["COMPATIBLE_VERSION", "DEVICE_BASIC_INFO", "DEVICE_APP_PID"].flatMap((name) => [request(name), `r ${AT.argument} 64`]),
  request("DEVICE_BASIC_INFO", 2),
  request("MEM_FREE", 2),
  ...allocation(65536), ...addressOf(1),
  ...allocation(MiB, { ncId: 1, dramChannel: 0 }), ...addressOf(2),
  ...allocation(8192, { hostMemory: 1, memType: 2 }), ...allocation(4096, {}, 1), ...addressOf(1, 1),
  ...allocation(0), ...allocation(2 ** 50), ...allocation(4096, { dramChannel: 9 }), ...allocation(4096, { memHandle: 65536 }),
  `p ${AT.data} 300000 5`, ...bufferCopy(1, 65536, 0, true), ...bufferCopy(2, 300000, 4096, true), ...bufferCopy(1, 65536, 1, true),
  `m 0 0 65536 3 ${small}`, "l 0 0 64", "l 0 65472 64", "s 0 100 deadbeef",
  `m 1 0 ${MiB} 1 ${large}`, "l 1 4096 64", "l 1 304000 200",
  `p ${AT.data} 65536 0`, ...bufferCopy(1, 65536, 0, false), `h ${AT.data} 65536`, `r ${AT.data + 96} 12`,
  struct(Memset64, { memHandle: 2, offset: 512, value: 0x5a, size: 1000 }), request("MEMSET64"), "l 1 500 32", "l 1 1500 32",
  struct(MemCopy64, { srcMemHandle: 2, dstMemHandle: 1, size: 4096, srcOffset: 4096, dstOffset: 8192 }), request("MEM_COPY64"), "l 0 8192 64",
  struct(MemGetExtendedInfo, { memHandle: 2, version: 1 }), request("MEM_GET_EXTENDED_INFO"), `r ${AT.argument} 64`,
  struct(MemGetExtendedInfo, { memHandle: 77, version: 1 }), request("MEM_GET_EXTENDED_INFO"),
  // Bad addresses: the argument, and one inside it.
  `a 0 ${0x80384e66} 65536`, `a 0 ${0x80384e66} 0`,
  `w ${ARENA - 16} 0200000000000000`, `a 0 ${0x80204e1c} ${BASE + ARENA - 16}`, `a 0 ${0xc0284e18} ${BASE + ARENA - 39}`,
  // The arena's end: a copy that runs out of memory half-way.
  copyBeyond(), request("MEM_BUF_COPY64"),
  "u 0", "u 1", struct(MemGetExtendedInfo, { memHandle: 1 }), request("MEM_FREE"), request("MEM_FREE"),
  "d 0 4", request("COMPATIBLE_VERSION", 4), "c 4", ...allocation(4096), "c 0", request("COMPATIBLE_VERSION"), "c 1", "c 2",
  "o 0 /dev/neuron0 0", ...allocation(4096), ...addressOf(2), `m 2 0 4096 3 ${small}`, `m 2 0 4096 1 ${small}`, "l 2 0 16",
  "f",
];

function copyBeyond(): string {
  const bytes = Buffer.from(bufferCopy(1, 65536, 0, true)[0]!.split(" ")[2]!, "hex");
  bytes.writeBigUInt64LE(BigInt(BASE + ARENA - 10000), 8);
  return `w ${AT.argument} ${bytes.toString("hex")}`;
}

interface Language {
  readonly name: string;
  readonly skip: string | false;
  make(): Client;
}

const languages: readonly Language[] = [
  { name: "a C program", skip: skipC, make: () => compile("clients/client.c") },
  { name: "a Python script", skip: skipPython, make: () => ready(["python3", fileURLToPath(new URL("clients/client.py", import.meta.url))]) },
  ...(["bun", "deno"] as const).map((runtime): Language => {
    const command = runtimeCommand(runtime, "clients/client.ts");
    return {
      name: `this package on ${runtime === "bun" ? "Bun" : "Deno"}`,
      skip: skipShim || (typeof command === "string" ? command : false),
      make: () => ready(command as readonly string[]),
    };
  }),
];

for (const { name, skip, make } of languages) {
  test(`${name} that opens /dev/neuron0 gets byte for byte what the fake answers in this process`, { skip, timeout: 60_000 }, async () => {
    using client = make();
    const { stdout, stderr, exitCode } = await runCaptured(client.command, machineOptions, session.join("\n"));
    assert.equal(stderr, "");
    assert.equal(exitCode, 0);
    const output = stdout.trimEnd().split("\n");
    using machine = createFake(machineOptions);
    const expected = runLocal(localClient(machine, Number(output[0])), session);
    assert.ok(expected.length > 80, `${expected.length} answers`);
    assert.deepEqual(output, expected);
  });
}
