// The filter, run by a small interpreter of classic BPF.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type FilterInstruction, SeccompAction } from "../../lib/shim/seccomp.ts";
import { type SyscallName, syscallTable } from "../../ffi/syscalls.ts";
import { shimFilter } from "../../lib/shim/filter.ts";

const arches = [["x64", 0xc000003e], ["arm64", 0xc00000b7]] as const;
const REFUSED = SeccompAction.ERRNO + 38;

interface Call {
  readonly nr: number;
  readonly arch: number;
  readonly args?: readonly number[];
}

/** What the kernel would do: checks that jumps stay inside, loads are aligned and something is returned. */
function decide(program: readonly FilterInstruction[], { nr, arch, args = [] }: Call): number {
  const data = new DataView(new ArrayBuffer(64));
  data.setUint32(0, nr, true);
  data.setUint32(4, arch, true);
  args.forEach((value, index) => {
    data.setUint32(16 + 8 * index, value % 2 ** 32, true);
    data.setUint32(20 + 8 * index, Math.floor(value / 2 ** 32), true);
  });
  let accumulator = 0;
  for (let at = 0; at < program.length;) {
    const { code, jt, jf, k } = program[at]!;
    assert.ok(jt >= 0 && jt < 256 && jf >= 0 && jf < 256 && at + 1 + Math.max(jt, jf) < program.length + 1, `jump at ${at}`);
    let holds = false;
    if (code === 0x20) accumulator = data.getUint32(k, true);
    else if (code === 0x54) accumulator = (accumulator & k) >>> 0;
    else if (code === 0x15) holds = accumulator === k;
    else if (code === 0x35) holds = accumulator >= k;
    else if (code === 0x45) holds = (accumulator & k) !== 0;
    else if (code === 0x06) return k;
    else assert.fail(`operation ${code} at ${at}`);
    at += 1 + (holds ? jt : jf);
  }
  return assert.fail("the program runs out");
}

const actions = new Map([[SeccompAction.ALLOW, "allow"], [SeccompAction.USER_NOTIF, "notify"], [REFUSED, "refuse"]]) as ReadonlyMap<number, string>;

for (const [name, arch] of arches) {
  const program = shimFilter(name);
  const numbers = syscallTable(name);
  const ask = (call: SyscallName, ...args: number[]) => actions.get(decide(program, { nr: numbers[call], arch, args }));

  test(`${name}: the driver's requests are notified, terminal and socket requests pass`, () => {
    assert.equal(ask("ioctl", 3, 0x80384e66), "notify");
    assert.equal(ask("ioctl", 3, 0xb0084e85), "notify");
    assert.equal(ask("ioctl", 3, 0x4e00), "notify");
    assert.equal(ask("ioctl", 0, 0x5401), "notify");
    assert.equal(ask("ioctl", 0, 0x541b), "notify");
    for (const passing of [0x5413, 0x5402, 0x5421, 0x5451, 0x540f, 0x8912, 0x8933]) assert.equal(ask("ioctl", 0, passing), "allow", passing.toString(16));
    assert.equal(ask("ioctl", 3, 0x8018586e), "notify");
    // The upper half of the register is not part of the request.
    assert.equal(ask("ioctl", 3, 7 * 2 ** 32 + 0x80384e66), "notify");
  });

  test(`${name}: mappings are notified when they can be of the node`, () => {
    const [shared, priv, anonymous] = [1, 2, 0x20];
    const at = (flags: number, fd: number, offset: number) => ask("mmap", 0, 4096, 3, flags, fd, offset);
    assert.equal(at(priv | anonymous, 0xffffffff, 0), "allow");
    assert.equal(at(shared | anonymous, 0xffffffff, 2 ** 40), "allow");
    assert.equal(at(priv, 3, 0), "allow");
    assert.equal(at(priv, 3, 0x200000), "allow");
    assert.equal(at(shared, 3, 0), "notify");
    assert.equal(at(3, 3, 0), "notify");
    assert.equal(at(priv, 3, 0x1000000), "notify");
    assert.equal(at(priv, 3, 0x5c0000000), "notify");
    assert.equal(at(priv, 3, 0x400000000000), "notify");
  });

  test(`${name}: of fcntl only duplicating is notified, of the rest only what names files`, () => {
    assert.equal(ask("fcntl", 3, 0), "notify");
    assert.equal(ask("fcntl", 3, 1030), "notify");
    for (const command of [1, 2, 3, 4, 37, 1031]) assert.equal(ask("fcntl", 3, command), "allow");
    for (const call of ["openat", "openat2", "close", "close_range", "dup", "dup3", "fstat", "newfstatat", "statx", "execve", "execveat", "readlinkat"] as const) {
      assert.equal(ask(call), "notify", call);
    }
    for (const call of ["lseek", "socket", "clone", "clone3", "tgkill", "ppoll", "mprotect", "madvise"] as const) assert.equal(ask(call), "allow", call);
  });

  test(`${name}: calls of another architecture are refused, whatever they are`, () => {
    fc.assert(fc.property(fc.nat(1024), fc.integer({ min: 0, max: 2 ** 32 - 1 }), (nr, other) => {
      fc.pre(other !== arch);
      assert.equal(actions.get(decide(program, { nr, arch: other })), "refuse");
    }));
    if (name === "x64") assert.equal(actions.get(decide(program, { nr: 0x40000000 + 16, arch, args: [3, 0x80384e66] })), "refuse");
  });

  test(`${name}: every call has an answer, and the program is one the kernel accepts`, () => {
    assert.ok(program.length <= 4096);
    fc.assert(fc.property(fc.nat(600), fc.array(fc.maxSafeNat(), { minLength: 6, maxLength: 6 }), (nr, args) => {
      assert.ok(actions.has(decide(program, { nr, arch, args })));
    }));
  });
}

test("the system call tables know both architectures, and no number twice", () => {
  for (const name of ["x64", "arm64"] as const) {
    const numbers = Object.values(syscallTable(name)).filter((number) => number >= 0);
    assert.equal(new Set(numbers).size, numbers.length);
  }
  assert.deepEqual([syscallTable("x64").openat, syscallTable("arm64").openat, syscallTable("arm64").open], [257, 56, -1]);
});
