/** The published schemas: files of `schemas/` with the type they are made from, by command. */
export const SCHEMAS: Readonly<Record<string, readonly { readonly file: string; readonly type: string }[]>> = {
  inspect: [{ file: "inspect.json", type: "InspectOutput" }],
  scan: [{ file: "scan.json", type: "ScanOutput" }],
  diff: [{ file: "diff.json", type: "DiffOutput" }],
  plan: [{ file: "plan.json", type: "PlanOutput" }],
  unpack: [{ file: "unpack.json", type: "UnpackOutput" }],
  pack: [{ file: "pack.json", type: "PackOutput" }],
  fit: [{ file: "fit.json", type: "FitOutput" }, { file: "fit-all-instances.json", type: "FitAllOutput" }],
  load: [{ file: "load.json", type: "LoadOutput" }],
  resolve: [{ file: "resolve.json", type: "ResolveOutput" }],
  map: [{ file: "map.json", type: "MapOutput" }],
  devices: [{ file: "devices.json", type: "DevicesOutput" }],
  mem: [{ file: "mem.json", type: "MemOutput" }],
  top: [{ file: "top.json", type: "TopOutput" }],
  copy: [{ file: "copy.json", type: "CopyOutput" }],
  replay: [{ file: "replay.json", type: "ReplayOutput" }, { file: "replay-requests.json", type: "ReplayRequestsOutput" }],
  explain: [{ file: "explain.json", type: "ExplainOutput" }, { file: "explain-log.json", type: "ExplainLogOutput" }],
};
