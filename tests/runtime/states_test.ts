import assert from "node:assert/strict";
import { test } from "node:test";
import { NrtError } from "../../lib/runtime/errors.ts";
import { RuntimeState } from "../../lib/abi/runtime_context.ts";
import { ApiGate } from "../../lib/runtime/process_state.ts";

const status = (code: number, text: RegExp) => (error: unknown) => error instanceof NrtError && error.status === code && text.test(error.message);

test("the gate answers 13 before init, 14 after close and 1 in a forked child (C-119)", () => {
  let pid = 100;
  const gate = new ApiGate(() => pid);
  assert.throws(() => gate.pass("allocate a tensor"), status(13, /Cannot allocate a tensor: NRT uninitialized/));
  assert.equal(gate.init(), true);
  gate.pass("allocate a tensor");
  assert.equal(gate.init(), false, "a second init is no fault");
  gate.close();
  gate.close();
  assert.throws(() => gate.pass("allocate a tensor"), status(14, /NRT already closed/));
  assert.equal(gate.init(), true, "close, then start again");
  pid = 101;
  assert.throws(() => gate.pass("allocate a tensor"), status(1, /Incompatible runtime state: CHILD/));
  pid = 100;
  assert.throws(() => gate.pass("read"), status(1, /CHILD/), "a child stays a child");
  assert.throws(() => gate.init(), status(1, /CHILD/));
});

test("the states have the runtime's numbers", () => {
  assert.deepEqual(RuntimeState, { START: 0, INIT: 1, CHILD: 2, CLOSED: 3 });
});
