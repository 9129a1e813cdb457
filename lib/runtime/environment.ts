import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NrtError } from "./errors.ts";

/** Environment variables by name; `process.env` fits, and so does a plain object in a test. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * A variable that holds a whole number, or undefined when it is not set.
 *
 * @throws {NrtError} NRT_INVALID when the text is not a decimal number
 */
export function numberVariable(env: Environment, name: string): number | undefined {
  const text = env[name];
  if (text === undefined) return undefined;
  if (!/^\d{1,15}$/.test(text)) {
    throw new NrtError(NrtStatus.INVALID, `Cannot use ${name}=${JSON.stringify(text)}: it is not a whole number`, {
      hint: `Set ${name} to a decimal number or unset it.`,
      details: { variable: name, value: text },
    });
  }
  return Number(text);
}

/**
 * A variable that switches something on (`1`, `true`) or off (`0`, `false`, empty), or `otherwise` when it is not set.
 *
 * @throws {NrtError} NRT_INVALID for any other text
 */
export function switchVariable(env: Environment, name: string, otherwise: boolean): boolean {
  const text = env[name];
  if (text === undefined) return otherwise;
  if (text === "1" || text === "true") return true;
  if (text === "0" || text === "false" || text === "") return false;
  throw new NrtError(NrtStatus.INVALID, `Cannot use ${name}=${JSON.stringify(text)}: it is neither 0 nor 1`, {
    hint: `Set ${name} to 0 or 1, or unset it.`,
    details: { variable: name, value: text },
  });
}
