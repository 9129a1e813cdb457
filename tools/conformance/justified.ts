import type { Scenario, Step } from "./recording.ts";

/** A step that did not come out as recorded. */
export interface UnlikeStep {
  /** Its scenario. */
  readonly scenario: Scenario;
  /** The step. */
  readonly step: Step;
  /** What differed. */
  readonly difference: string;
  /** Whether the fake refused the step, or one before it in a danger scenario. */
  readonly refused: boolean;
  /** Whether a real process called the kernel. */
  readonly outOfProcess: boolean;
  /** Whether the step, or one before it, asked for what only root may do, and the process is not root. */
  readonly denied: boolean;
}

/** A difference that is right as it is, and why. */
export interface Justification {
  /** Its name in reports. */
  readonly name: string;
  /** Why the difference is right. */
  readonly reason: string;
  /** Whether it explains a difference. */
  readonly explains: (unlike: UnlikeStep) => boolean;
}

/** All differences from the recordings that are allowed: everything else counts as different. */
export const justifications: readonly Justification[] = [
  {
    name: "refused-danger",
    reason: "The request would stop or corrupt a real kernel, or the scenario shows what does; the fake refuses it loudly instead, and what follows depends on it.",
    explains: ({ scenario, difference, refused }) => difference.startsWith("refused: ") || (scenario.category === "danger" && refused),
  },
  {
    name: "not-root",
    reason: "The recorded process was root, this one is not: it may not map memory that no chunk explains nor write to sysfs, and what follows depends on it.",
    explains: ({ denied }) => denied,
  },
  {
    name: "memory-file",
    reason: "To the kernel, the node under the shim is a memory file: it seeks in it, and lets mappings of it grow, without asking anybody.",
    explains: ({ step, difference, outOfProcess }) => outOfProcess && (step.op === "lseek" || step.op === "mremap") && difference.startsWith("ret 0 "),
  },
];

/** Whether a step was denied what only root may do. */
export function isDenied(step: Step, difference: string): boolean {
  return (step.op === "mmap" && difference.startsWith("ret -1 EPERM, ")) || (step.op === "sysfs-write" && difference.startsWith("ret -1 EACCES, "));
}

/** The justification of a difference, or undefined. */
export function justify(unlike: UnlikeStep): Justification | undefined {
  return justifications.find((each) => each.explains(unlike));
}
