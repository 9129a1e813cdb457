/** Entry of the process that hosts a named machine: `host_process.ts SOCKET OPTIONS`. Ends by itself. */
import { checkResult } from "../../ffi/errno.ts";
import { listenAbstract } from "./socket.ts";
import { hostMachine, type HostOptions } from "./host.ts";

/** Errno: the name is taken. */
const EADDRINUSE = 98;
const [name = "", options = "{}"] = process.argv.slice(2);
const socket = listenAbstract(name);
// Somebody else was faster: both runners use that host.
if (socket !== -EADDRINUSE) hostMachine(JSON.parse(options) as HostOptions, checkResult(socket, "listen", { subject: name }));
