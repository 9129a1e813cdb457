import { compileC } from "./c.ts";

/** Copies through the two halves of a buffer, the second copy of each chunk by a thread: the pipeline, with nothing around it. */
const SOURCE = `
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#define PIECE (256u << 10)
static _Atomic uint32_t head __attribute__((aligned(128))), tail __attribute__((aligned(128)));
static struct { char *to, *from; size_t length; } jobs[4];
static void move(char *to, const char *from, size_t length) {
  for (size_t at = 0; at < length; at += PIECE) memmove(to + at, from + at, length - at < PIECE ? length - at : PIECE);
}
static void *run(void *unused) {
  for (uint32_t done = 0;; done++) {
    while (atomic_load(&head) == done) {}
    if (jobs[done & 3].length == 0) return 0;
    move(jobs[done & 3].to, jobs[done & 3].from, jobs[done & 3].length);
    atomic_store(&tail, done + 1);
  }
}
static pthread_t thread;
static void hand_over(char *to, char *from, size_t length) {
  uint32_t next = atomic_load(&head);
  jobs[next & 3].to = to; jobs[next & 3].from = from; jobs[next & 3].length = length;
  atomic_store(&head, next + 1);
}
int start(void) {
  atomic_store(&head, 0);
  atomic_store(&tail, 0);
  return pthread_create(&thread, 0, run, 0);
}
int stop(void) {
  hand_over(0, 0, 0);
  return pthread_join(thread, 0);
}
int copy(const uint64_t *addresses, uint32_t length, uint32_t chunk) {
  char *target = (char *)addresses[0], *half = (char *)addresses[1], *source = (char *)addresses[2];
  for (size_t at = 0, other = 0; at < length; at += chunk, other ^= 1u << 20) {
    size_t now = length - at < chunk ? length - at : chunk;
    move(half + other, source + at, now);
    hand_over(target + at, half + other, now);
    while ((int32_t)(atomic_load(&head) - atomic_load(&tail)) > 1) {}
  }
  while (atomic_load(&head) != atomic_load(&tail)) {}
  return 0;
}
`;

/** A pipeline that runs; its thread spins until it is stopped. */
export interface TwoThreads extends Disposable {
  /** Copies `length` bytes from `source` to `target` through the two MiB at `bounce`, all of them addresses. */
  copy(target: number, bounce: number, source: number, length: number, chunk: number): void;
}

/** Starts the pipeline; undefined when there is no C compiler. */
export function twoThreads(): TwoThreads | undefined {
  const functions = compileC(SOURCE, { start: [], stop: [], copy: ["ptr", "u32", "u32"] });
  if (functions === undefined) return undefined;
  const addresses = new BigUint64Array(3);
  if (functions["start"]!() !== 0) throw new Error("the bench's thread does not start");
  return {
    copy(target, bounce, source, length, chunk) {
      addresses[0] = BigInt(target);
      addresses[1] = BigInt(bounce);
      addresses[2] = BigInt(source);
      functions["copy"]!(addresses, length, chunk);
    },
    [Symbol.dispose]: () => void functions["stop"]!(),
  };
}
