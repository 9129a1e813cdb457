// Bun gives a test five seconds by default, Deno any time. A loaded machine needs more.
import { setDefaultTimeout } from "bun:test";

setDefaultTimeout(300_000);
