// Runs a program under a fake, as the command line does: options as JSON, then the command. Prints how it ended.
import { runUnderFake } from "../../../lib/shim/run.ts";

const [options = "{}", ...command] = process.argv.slice(2);
const { exitCode, signal } = await runUnderFake(command, JSON.parse(options));
console.log(`${exitCode} ${signal}`);
