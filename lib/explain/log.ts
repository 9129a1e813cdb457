import { parseBytes } from "../text/size.ts";
import { type CodeExplanation, explainCode } from "./codes.ts";
import { type ExplainOptions, HARMLESS, LOG_RULES } from "./log_rules.ts";

/** One thing a log says went wrong. */
export interface Finding {
  /** Stable word for programs, for example `out-of-hbm`. */
  readonly cause: string;
  /** Whether it explains the failure, or only follows from another finding. */
  readonly role: "cause" | "consequence";
  /** One sentence with the log's own numbers. */
  readonly meaning: string;
  /** What to try, in order. */
  readonly advice: readonly string[];
  /** 1-based line of its first occurrence. */
  readonly line: number;
  /** How often it occurs. */
  readonly count: number;
  /** Runtime status that goes with it, or null. */
  readonly status: number | null;
  /** The numbers of the log, sizes in bytes. */
  readonly details: Readonly<Record<string, string | number>>;
}

/** What a log says. */
export interface LogExplanation {
  /** Causes first, then consequences, each in order of appearance. */
  readonly findings: readonly Finding[];
  /** The first cause, or null when nothing was recognised. */
  readonly cause: Finding | null;
  /** Usage by category of the first out-of-memory report in the text, in bytes; null without one. */
  readonly usage: Readonly<Record<string, number>> | null;
  /** Codes that occur in the text, explained. */
  readonly codes: readonly CodeExplanation[];
  /** Lines read, and how many of them are known to be harmless. */
  readonly lines: { readonly total: number; readonly harmless: number };
}

/** Finds the cause in a runtime's log: recognises its lines, ignores harmless ones, puts consequences after causes. */
export function explainLog(text: string, options: ExplainOptions = {}): LogExplanation {
  const lines = text === "" ? [] : text.replace(/\r?\n$/, "").split(/\r?\n/);
  const found = new Map<string, Finding>();
  let harmless = 0;
  lines.forEach((line, index) => {
    if (HARMLESS.some((pattern) => pattern.test(line))) {
      harmless++;
      return;
    }
    for (const rule of LOG_RULES) {
      const match = rule.pattern.exec(line);
      if (match === null) continue;
      const { meaning, details = {} } = rule.read(match, options);
      const key = `${rule.cause} ${meaning}`;
      const before = found.get(key);
      found.set(key, before !== undefined ? { ...before, count: before.count + 1 } : {
        cause: rule.cause, role: rule.role ?? "cause", meaning, advice: rule.advice, line: index + 1, count: 1, status: rule.status ?? null, details,
      });
      if (rule.last !== false) break;
    }
  });
  const findings = [...found.values()].sort((a, b) => Number(a.role === "consequence") - Number(b.role === "consequence") || a.line - b.line);
  return {
    findings,
    cause: findings.find((finding) => finding.role === "cause") ?? null,
    usage: readUsage(lines),
    codes: readCodes(text),
    lines: { total: lines.length, harmless },
  };
}

/** Reads the flat form of the usage report: `* tensors: 15.855GB` lines. */
function readUsage(lines: readonly string[]): Record<string, number> | null {
  const usage: Record<string, number> = {};
  for (const line of lines) {
    const match = /^\s*(?:.*\s)?\* ([a-z ]+): ([\d.]+ ?[KMGT]?i?B)\s*$/i.exec(line);
    if (match === null) {
      if (Object.keys(usage).length > 0 && line.trim() !== "") break;
      continue;
    }
    usage[match[1]!.trim()] = parseBytes(match[2]!);
  }
  return Object.keys(usage).length > 0 ? usage : null;
}

/** Status numbers and names the text mentions: `err: 10`, `status=4`, `NRT_RESOURCE`. */
function readCodes(text: string): CodeExplanation[] {
  const words = [
    ...[...text.matchAll(/\b(?:err|status|error code|ret)\s*[:=]\s*(\d{1,4})\b/gi)].map((match) => match[1]!),
    ...[...text.matchAll(/\bNRT_[A-Z_]+\b/g)].map((match) => match[0]),
  ];
  const codes = new Map<number, CodeExplanation>();
  for (const word of words) {
    const code = explainCode(word);
    if (code !== undefined && code.code !== 0) codes.set(code.code, code);
  }
  return [...codes.values()];
}
