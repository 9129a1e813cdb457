// What programs do with paths, descriptors and processes besides requests, in an unmodified Python.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { machineOptions, runCaptured, skipPython } from "./support.ts";

const program = fileURLToPath(new URL("clients/programs.py", import.meta.url));

const parts: Readonly<Record<string, string>> = {
  paths: "the node is found by absolute and relative paths, and nothing that only looks like it",
  files: "a descriptor of the node is a character device that cannot be read, and each kind of open has its rights",
  inheritance: "children inherit descriptors without being attached, and exec closes what is marked for it",
  duplicates: "closing a duplicate detaches the process, however it was made",
  threads: "the threads of a program are one process to the driver",
  foreign_mapping: "mappings begin with their chunk, are read only for other processes and not inherited",
  locks: "a request that waits for another process keeps only its caller waiting",
  sent: "a descriptor sent over a socket works in the receiver",
  sysfs: "the driver's files in /sys are the fake's, by every kind of path, and current",
};

for (const [part, title] of Object.entries(parts)) {
  test(title, { skip: skipPython, timeout: 60_000 }, async () => {
    const { stdout, stderr, exitCode } = await runCaptured(["python3", program, part], { ...machineOptions, danger: "throw" });
    assert.equal(stderr, "");
    assert.equal(stdout, "ok\n");
    assert.equal(exitCode, 0);
  });
}
