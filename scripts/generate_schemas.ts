/**
 * Writes `schemas/*.json` from the types in `lib/cli/text/json_output.ts`. A test checks that
 * they are up to date.
 *
 *     bun scripts/generate_schemas.ts
 */
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createGenerator } from "ts-json-schema-generator";
import { COMMAND_NAMES, COMMANDS } from "../lib/cli/commands.ts";
import type { CommandSpec } from "../lib/cli/options.ts";

const root = fileURLToPath(new URL("../", import.meta.url));

/** The schemas by path from the root of the repository. */
export function generateSchemas(): Readonly<Record<string, string>> {
  const generator = createGenerator({
    path: `${root}lib/cli/text/json_output.ts`, tsconfig: `${root}tsconfig.json`, skipTypeCheck: true, additionalProperties: true, expose: "none",
    topRef: false, sortProps: false,
  });
  return Object.fromEntries(COMMAND_NAMES.flatMap((command) => schemasOf(COMMANDS[command]).map(({ file, type }) => {
    const { $schema, ...schema } = generator.createSchema(type);
    return [`schemas/${file}`, `${JSON.stringify({ $schema, title: `neuron-dmem ${command} --json`, ...schema }, null, 2)}\n`];
  })));
}

function schemasOf({ schemas = [] }: CommandSpec): NonNullable<CommandSpec["schemas"]> {
  return schemas;
}

if (import.meta.main) {
  for (const [path, text] of Object.entries(generateSchemas())) writeFileSync(`${root}${path}`, text);
}
