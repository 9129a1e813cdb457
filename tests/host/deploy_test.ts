import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { SyntaxNode, SyntaxNodeRef } from "@lezer/common";
import { parser as promql } from "@prometheus-io/lezer-promql";
import { DaemonSet } from "kubernetes-models/apps/v1/DaemonSet";
import { Namespace } from "kubernetes-models/v1/Namespace";
import { Service } from "kubernetes-models/v1/Service";
import * as v from "valibot";
import { parseAllDocuments } from "yaml";
import { metricDefinitions, parseListen } from "../../lib/host/metrics.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const read = (path: string): string => readFileSync(root + path, "utf8");
const documents = parseAllDocuments(read("deploy/kubernetes.yaml"), { strict: true, uniqueKeys: true });
const manifests = documents.map((document) => document.toJS() as Record<string, unknown>);
const byKind = (kind: string): Record<string, unknown> => manifests.find((one) => one["kind"] === kind)!;

test("the manifests are valid YAML and follow the schemas of Kubernetes", () => {
  assert.deepEqual(documents.flatMap(({ errors, warnings }) => [...errors, ...warnings]), []);
  assert.deepEqual(manifests.map(({ kind }) => kind), ["Namespace", "DaemonSet", "Service"]);
  new Namespace(byKind("Namespace") as never).validate();
  new DaemonSet(byKind("DaemonSet") as never).validate();
  new Service(byKind("Service") as never).validate();
  // The schemas do notice what is wrong.
  const broken = structuredClone(byKind("DaemonSet")) as { spec: { template: { spec: { containers: { ports: { containerPort: unknown }[] }[] } } } };
  broken.spec.template.spec.containers[0]!.ports[0]!.containerPort = "metrics";
  assert.throws(() => new DaemonSet(broken as never).validate());
});

const sysMount = v.object({ name: v.string(), mountPath: v.pipe(v.string(), v.startsWith("/host/sys/")), readOnly: v.literal(true) });
const probe = v.object({ httpGet: v.object({ path: v.picklist(["/healthz", "/readyz"]), port: v.literal("metrics") }) });
const container = v.object({
  image: v.pipe(v.string(), v.regex(/^[\w./-]+:\d+\.\d+\.\d+$/, "a version, never latest")),
  args: v.array(v.string()),
  ports: v.tuple([v.object({ name: v.literal("metrics"), containerPort: v.number() })]),
  securityContext: v.strictObject({
    allowPrivilegeEscalation: v.literal(false), readOnlyRootFilesystem: v.literal(true), capabilities: v.strictObject({ drop: v.tuple([v.literal("ALL")]) }),
  }),
  resources: v.object({ requests: v.object({ cpu: v.string(), memory: v.string() }), limits: v.object({ cpu: v.string(), memory: v.string() }) }),
  startupProbe: probe, livenessProbe: probe, readinessProbe: probe,
  volumeMounts: v.array(sysMount),
});
const podSpec = v.object({
  automountServiceAccountToken: v.literal(false),
  hostNetwork: v.optional(v.literal(false)), hostPID: v.optional(v.literal(false)), hostIPC: v.optional(v.literal(false)), initContainers: v.optional(v.never()),
  securityContext: v.object({ runAsNonRoot: v.literal(true), runAsUser: v.pipe(v.number(), v.minValue(1)), seccompProfile: v.object({ type: v.literal("RuntimeDefault") }) }),
  containers: v.tuple([container]),
  volumes: v.array(v.strictObject({ name: v.string(), hostPath: v.object({ path: v.pipe(v.string(), v.startsWith("/sys/")), type: v.literal("Directory") }) })),
});
const daemonSet = v.object({ spec: v.object({ selector: v.object({ matchLabels: v.record(v.string(), v.string()) }), template: v.object({ metadata: v.object({ labels: v.record(v.string(), v.string()), annotations: v.record(v.string(), v.string()) }), spec: podSpec }) }) });

test("the pods are unprivileged: no root, no capabilities, read-only mounts of /sys, limits, probes", () => {
  const { spec } = v.parse(daemonSet, byKind("DaemonSet"));
  const pod = spec.template.spec;
  const [metrics] = pod.containers;
  assert.deepEqual(metrics.volumeMounts.map(({ name }) => name).sort(), pod.volumes.map(({ name }) => name).sort());
  // What is mounted where the exporter looks.
  const paths = new Map(pod.volumes.map(({ name, hostPath }) => [name, hostPath.path]));
  for (const { name, mountPath } of metrics.volumeMounts) assert.equal(mountPath, `/host${paths.get(name)}`);
  assert.equal(metrics.args[metrics.args.indexOf("--sysfs") + 1], "/host/sys");
  // Liveness must not depend on the driver: a missing driver is no reason to restart.
  assert.equal(metrics.livenessProbe.httpGet.path, "/healthz");
  assert.equal(metrics.readinessProbe.httpGet.path, "/readyz");
});

test("ports and labels agree between pods, service, annotations and arguments", () => {
  const { spec } = v.parse(daemonSet, byKind("DaemonSet"));
  const [metrics] = spec.template.spec.containers;
  const port = metrics.ports[0].containerPort;
  assert.equal(parseListen(metrics.args[metrics.args.indexOf("--listen") + 1]!).port, port);
  assert.equal(spec.template.metadata.annotations["prometheus.io/port"], String(port));
  const service = v.parse(v.object({ spec: v.object({ selector: v.record(v.string(), v.string()), ports: v.tuple([v.object({ port: v.number(), targetPort: v.literal("metrics") })]) }) }), byKind("Service"));
  assert.equal(service.spec.ports[0].port, port);
  for (const labels of [spec.selector.matchLabels, service.spec.selector]) {
    for (const [name, value] of Object.entries(labels)) assert.equal(spec.template.metadata.labels[name], value);
  }
});

test("the image is built from what is there, for nobody in particular, with the tested runtime", () => {
  const lines = read("deploy/Dockerfile").replace(/\\\n/g, " ").split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  const bun = (JSON.parse(read("package.json")) as { devDependencies: Record<string, string> }).devDependencies["bun"]!;
  assert.ok(lines.includes(`FROM oven/bun:${bun}-slim`), `bun ${bun}`);
  for (const line of lines.filter((one) => one.startsWith("COPY ") && !one.includes("--from="))) {
    for (const source of line.split(/\s+/).slice(1, -1)) assert.ok(existsSync(root + source), source);
  }
  assert.match(lines.find((line) => line.startsWith("USER "))!, /^USER [1-9]\d*:[1-9]\d*$/);
  const entry = JSON.parse(lines.find((line) => line.startsWith("ENTRYPOINT "))!.slice(11)) as string[];
  assert.ok(existsSync(root + entry.at(-1)!));
});

const target = v.object({ refId: v.string(), expr: v.string(), legendFormat: v.string() });
const panel = v.object({
  id: v.number(), type: v.picklist(["stat", "timeseries", "table"]), title: v.pipe(v.string(), v.minLength(3)), description: v.string(),
  gridPos: v.strictObject({ x: v.number(), y: v.number(), w: v.number(), h: v.number() }), targets: v.array(target),
  fieldConfig: v.object({ defaults: v.object({ unit: v.picklist(["bytes", "none", "percentunit", "Bps"]) }) }),
});
const variable = v.object({ name: v.string(), type: v.picklist(["datasource", "query"]), definition: v.optional(v.string()) });
const dashboard = v.parse(
  v.object({ title: v.string(), uid: v.string(), schemaVersion: v.pipe(v.number(), v.minValue(36)), panels: v.array(panel), templating: v.object({ list: v.array(variable) }) }),
  JSON.parse(read("deploy/grafana.json")),
);

/** Labels every scrape adds. */
const SCRAPE_LABELS = ["instance", "job"];
const labelsOf = new Map(metricDefinitions.map(({ name, labels }) => [name, new Set([...labels, ...SCRAPE_LABELS])]));

/** The metrics of a PromQL expression with the labels it asks them for. @throws when it is not PromQL */
function metricsIn(expression: string): readonly { readonly metric: string; readonly labels: readonly string[] }[] {
  // Grafana puts a duration in.
  const text = expression.replaceAll("$__rate_interval", "5m");
  const tree = promql.parse(text);
  const of = (node: SyntaxNodeRef | SyntaxNode) => text.slice(node.from, node.to);
  const found: { metric: string; labels: string[] }[] = [];
  const grouped: string[] = [];
  tree.iterate({
    enter(node) {
      assert.ok(!node.type.isError, `not PromQL near "${text.slice(node.from)}" of ${text}`);
      if (node.name === "VectorSelector") {
        const metric = node.node.getChild("Identifier");
        found.push({ metric: metric === null ? "" : of(metric), labels: [] });
      }
      if (node.name === "LabelName") {
        const isMatcher = node.node.parent?.name.endsWith("LabelMatcher") === true;
        if (isMatcher) found.at(-1)!.labels.push(of(node));
        else grouped.push(of(node));
      }
    },
  });
  return found.map(({ metric, labels }) => ({ metric, labels: [...labels, ...grouped] }));
}

test("every query of the dashboard is PromQL over metrics and labels that exist", () => {
  const used = new Set<string>();
  let queries = 0;
  const check = (expression: string, where: string) => {
    const metrics = metricsIn(expression);
    assert.ok(metrics.length > 0, where);
    for (const { metric, labels } of metrics) {
      assert.ok(labelsOf.has(metric), `${where}: ${metric}`);
      for (const label of labels) assert.ok(labelsOf.get(metric)!.has(label), `${where}: ${metric} has no label ${label}`);
      used.add(metric);
    }
    queries++;
    return metrics;
  };
  for (const { title, targets } of dashboard.panels) {
    for (const { expr, legendFormat } of targets) {
      const metrics = check(expr, title);
      const by = /by \(([^)]*)\)/.exec(expr)?.[1]?.split(/,\s*/);
      for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) {
        assert.ok(by === undefined ? metrics.every(({ metric }) => labelsOf.get(metric)!.has(label!)) : by.includes(label!), `${title}: the legend has no ${label}`);
      }
    }
  }
  for (const { name, definition } of dashboard.templating.list) {
    if (definition === undefined) continue;
    const match = /^label_values\((.+), (\w+)\)$/.exec(definition);
    assert.ok(match !== null, definition);
    const { metric } = check(match[1]!, name)[0]!;
    assert.ok(labelsOf.get(metric)!.has(match[2]!));
  }
  assert.ok(queries >= 15, `${queries}`);
  const wanted = metricDefinitions.map(({ name }) => name).filter((name) => !/core_host|category_peak/.test(name));
  assert.deepEqual(wanted.filter((name) => !used.has(name)), [], "metrics nobody looks at");
});

test("queries in the documentation are PromQL over metrics that exist", () => {
  const queries = [...read("docs/metrics.md").matchAll(/```promql\n(.*?)\n```/gs)].map((match) => match[1]!);
  assert.ok(queries.length > 0);
  for (const query of queries) for (const { metric } of metricsIn(query)) assert.ok(labelsOf.has(metric), metric);
});

test("the checker of queries notices what is wrong", () => {
  assert.throws(() => metricsIn("sum(neuron_dmem_devices"));
  assert.deepEqual(metricsIn(`sum by (nope) (gone{a="b"})`), [{ metric: "gone", labels: ["a", "nope"] }]);
});

test("the dashboard's variables are declared, panels do not overlap, and ids are unique", () => {
  const declared = new Set(dashboard.templating.list.map(({ name }) => name));
  const text = read("deploy/grafana.json");
  for (const [, name] of text.matchAll(/\$\{?(\w+)\}?/g)) assert.ok(declared.has(name!) || name!.startsWith("__"), name!);
  assert.equal(new Set(dashboard.panels.map(({ id }) => id)).size, dashboard.panels.length);
  const cells = new Set<string>();
  for (const { title, gridPos: { x, y, w, h } } of dashboard.panels) {
    assert.ok(x >= 0 && x + w <= 24, title);
    for (let column = x; column < x + w; column++) for (let row = y; row < y + h; row++) {
      assert.ok(!cells.has(`${column} ${row}`), title);
      cells.add(`${column} ${row}`);
    }
  }
});
