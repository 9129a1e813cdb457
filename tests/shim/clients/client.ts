// Carries out a script on the node through this package's own real-device path. See README.md.
import { readFileSync, statSync } from "node:fs";
import { linuxKernel, native } from "../../../ffi/mod.ts";
import { syscalls } from "../../../ffi/syscalls.ts";
import { ARENA, BASE, interpreter } from "../interpreter.ts";

const MAP_PRIVATE_ANONYMOUS_NOREPLACE = 0x100022;
const kernel = linuxKernel();
if (native().syscall(syscalls.mmap, BASE, ARENA, 3, MAP_PRIVATE_ANONYMOUS_NOREPLACE, -1, 0) !== BASE) process.exit(9);

const step = interpreter({
  arena: new Uint8Array(native().bufferAt(BASE, ARENA)),
  open: (path, flags) => kernel.open(path, flags),
  close: (fd) => kernel.close(fd),
  dup: (fd) => native().syscall(syscalls.dup, fd),
  ioctl: (fd, request, address) => kernel.ioctl(fd, request, address),
  mmap: (fd, length, protection, flags, offset) => kernel.mmap(fd, length, protection, flags, offset),
  pid: process.pid,
  stat(path) {
    try {
      const { rdev, ...status } = statSync(path);
      const kind = statSync(path).isCharacterDevice() ? "char" : statSync(path).isDirectory() ? "dir" : "file";
      void status;
      return kind === "char" ? `char ${Math.floor(rdev / 256)}:${rdev % 256}` : `${kind} 0:0`;
    } catch (error) {
      return (error as { code?: string }).code === "ENOENT" ? -2 : -1;
    }
  },
});

const output: string[] = [];
for (const line of readFileSync(0, "utf8").split("\n")) {
  const result = step(line);
  if (result !== undefined) output.push(`${result}\n`);
}
process.stdout.write(output.join(""));
