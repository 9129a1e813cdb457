import type { Scenario, Step } from "./recording.ts";

/** A difference that is right as it is, and why. */
export interface Justification {
  /** Its name in reports. */
  readonly name: string;
  /** Why the difference is right. */
  readonly reason: string;
  /** Whether it explains a difference. @param refused whether the fake refused the step, or one before it in a danger scenario */
  readonly explains: (scenario: Scenario, step: Step, difference: string, refused: boolean) => boolean;
}

/** All differences from the recordings that are allowed: everything else counts as different. */
export const justifications: readonly Justification[] = [
  {
    name: "refused-danger",
    reason: "The request would stop or corrupt a real kernel, or the scenario shows what does; the fake refuses it loudly instead, and what follows depends on it.",
    explains: (scenario, _step, difference, refused) => difference.startsWith("refused: ") || (scenario.category === "danger" && refused),
  },
];

/** The justification of a difference, or undefined. */
export function justify(scenario: Scenario, step: Step, difference: string, refused: boolean): Justification | undefined {
  return justifications.find((each) => each.explains(scenario, step, difference, refused));
}
