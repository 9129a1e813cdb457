/** The metrics over HTTP. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { metricsText } from "./metrics.ts";
import type { SysfsMemory } from "./sysfs_memory.ts";

/** Where to listen: an address and a port. */
export interface ListenAddress {
  /** Host name or address, without brackets. */
  readonly host: string;
  /** Port, 0 for any. */
  readonly port: number;
}

/** Default place of {@linkcode serveMetrics}: this machine only. */
export const defaultListen: ListenAddress = { host: "127.0.0.1", port: 9479 };

/** Options of {@linkcode serveMetrics}. */
export interface MetricsServerOptions extends Partial<ListenAddress> {
  /** Reads the counters, for every scrape anew. */
  readonly read: () => SysfsMemory;
}

/** A running server. */
export interface MetricsServer {
  /** For example `http://127.0.0.1:9479`. */
  readonly url: string;
  /** Where it listens. */
  readonly address: ListenAddress;
  /** Stops it; running answers are cut off. A second call does nothing. */
  close(): Promise<void>;
  /** Same as `close()`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Reads `ADDR:PORT`, `:PORT` or `PORT`; an IPv6 address in brackets.
 *
 * @throws {ArgumentError} for anything else, and for ports above 65535
 */
export function parseListen(text: string): ListenAddress {
  const match = /^(?:(\[[0-9a-f:.%a-z]+\]|[^:[\]\s]*):)?(\d{1,5})$/i.exec(text.trim());
  const port = Number(match?.[2]);
  if (match === null || port > 65535) {
    throw new ArgumentError(`Cannot listen on "${text}": it is not ADDRESS:PORT with a port up to 65535`, { hint: "For example 127.0.0.1:9479, 0.0.0.0:9479 or [::1]:9479." });
  }
  return { host: match[1] === undefined || match[1] === "" ? defaultListen.host : match[1].replace(/^\[|\]$/g, ""), port };
}

/**
 * Serves `/metrics` (Prometheus text, or OpenMetrics to who asks for it),
 * `/healthz` (the process lives) and `/readyz` (the driver and a device are
 * there). Listens on this machine only unless told otherwise.
 *
 * @throws {NeuronError} when the address cannot be listened on
 */
export async function serveMetrics(options: MetricsServerOptions): Promise<MetricsServer> {
  const { host, port } = { ...defaultListen, ...options };
  const server = createServer((request, response) => void answer(request, response, options.read));
  await new Promise<void>((ready, failed) => {
    server.once("error", failed);
    server.listen(port, host, ready);
  }).catch((error: unknown) => {
    throw new NeuronError(`Cannot listen on ${host}:${port}: ${(error as Error).message}`, { cause: error, hint: "Another process may use the port, or the address is not of this machine.", details: { host, port } });
  });
  const bound = (server.address() as AddressInfo).port;
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => closed ??= new Promise((done) => {
    server.close(() => done());
    server.closeAllConnections();
  });
  return { url: `http://${host.includes(":") ? `[${host}]` : host}:${bound}`, address: { host, port: bound }, close, [Symbol.asyncDispose]: close };
}

const PAGE = "neuron-dmem: memory of the Neuron devices of this host\n\n/metrics  /healthz  /readyz\n";
const PLAIN = "text/plain; charset=utf-8";

interface Answer {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
  readonly allow?: string;
}

async function answer(request: IncomingMessage, response: ServerResponse, read: () => SysfsMemory): Promise<void> {
  let result: Answer;
  try {
    result = await answerTo(request, read);
  } catch (error) {
    result = { status: 500, contentType: PLAIN, text: `Cannot read the counters: ${(error as Error).message}\n` };
  }
  const body = new TextEncoder().encode(result.text);
  response.writeHead(result.status, {
    "Content-Type": result.contentType, "Content-Length": body.length, "Cache-Control": "no-store", ...(result.allow === undefined ? {} : { Allow: result.allow }),
  });
  response.end(request.method === "HEAD" ? undefined : body);
}

async function answerTo({ method, url, headers }: IncomingMessage, read: () => SysfsMemory): Promise<Answer> {
  if (method !== "GET" && method !== "HEAD") return { status: 405, contentType: PLAIN, text: "Only GET and HEAD.\n", allow: "GET, HEAD" };
  switch ((url ?? "/").split("?")[0]) {
    case "/":
      return { status: 200, contentType: PLAIN, text: PAGE };
    case "/healthz":
      return { status: 200, contentType: PLAIN, text: "ok\n" };
    case "/readyz": {
      const { devices, problems } = read();
      return devices.length > 0 ? { status: 200, contentType: PLAIN, text: `${devices.length} devices\n` } : { status: 503, contentType: PLAIN, text: `${problems.join("\n")}\n` };
    }
    case "/metrics":
      return { status: 200, ...await metricsText(read(), (headers.accept ?? "").includes("application/openmetrics-text") ? "openmetrics" : "prometheus") };
    default:
      return { status: 404, contentType: PLAIN, text: "Not here. There is /metrics, /healthz and /readyz.\n" };
  }
}
