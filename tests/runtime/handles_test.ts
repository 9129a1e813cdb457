import assert from "node:assert/strict";
import { test } from "node:test";
import { createHandleMinter, processHandles, storedHandle } from "../../lib/runtime/model_database.ts";

test("the first handle is 1001 and every later one is larger (C-064)", () => {
  const minter = createHandleMinter();
  const handles = Array.from({ length: 1000 }, () => minter.next());
  assert.equal(handles[0], 1001);
  assert.ok(handles.every((handle, index) => index === 0 || handle > handles[index - 1]!));
  assert.ok(processHandles().next() < processHandles().next());
});

test("0 is never a handle, also not in the 32 bits a model record stores (C-065)", () => {
  const top = createHandleMinter(2n ** 64n - 1n);
  assert.equal(top.next(), 1);
  const stored = createHandleMinter(2n ** 32n - 1n);
  const handle = stored.next();
  assert.equal(handle, 2 ** 32 + 1);
  assert.equal(storedHandle(handle), 1);
  assert.equal(createHandleMinter(2n ** 32n - 2n).next(), 2 ** 32 - 1);
});
