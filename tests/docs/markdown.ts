/** As much of Markdown as the tests of the documents need: headings, links, fenced blocks. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { slugger } from "../../scripts/generate_docs_slug.ts";

/** The repository. */
export const root = fileURLToPath(new URL("../../", import.meta.url));

/** A fenced block. */
export interface Block {
  /** Line of the opening fence, from 1. */
  readonly line: number;
  /** First word behind the fence: `ts`, `sh`, `text` … */
  readonly language: string;
  /** The words behind it: `output`, `no-run`. */
  readonly tags: readonly string[];
  readonly code: string;
}

/** A link to somewhere. */
export interface Link {
  readonly line: number;
  readonly target: string;
}

/** A document. */
export interface Document {
  /** Path from the root of the repository. */
  readonly path: string;
  readonly text: string;
  readonly blocks: readonly Block[];
  readonly links: readonly Link[];
  /** Anchors of its headings. */
  readonly anchors: ReadonlySet<string>;
}

/** All documents that people read: everything Markdown outside of the packages of others. */
export function documents(): Document[] {
  const top = readdirSync(root).filter((name) => name.endsWith(".md"));
  const below = ["docs", "samples", "deploy", "examples", "bench"].flatMap((folder) => markdownIn(folder));
  return [...top, ...below].sort().map((path) => parseDocument(path, readFileSync(join(root, path), "utf8")));
}

function markdownIn(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".md")).map((name) => `${folder}/${name}`);
}

/** Parses a document. @param path its path, for messages and relative links */
export function parseDocument(path: string, text: string): Document {
  const blocks: Block[] = [];
  const links: Link[] = [];
  const anchors = new Set<string>();
  const slug = slugger();
  let open: { readonly line: number; readonly fence: string; readonly info: string; readonly indent: number; readonly lines: string[] } | undefined;
  text.split("\n").forEach((line, index) => {
    const fence = /^(\s*)(`{3,}|~{3,})(.*)$/.exec(line);
    if (open !== undefined) {
      if (fence !== null && fence[2]!.startsWith(open.fence) && fence[3]!.trim() === "") {
        const [language = "", ...tags] = open.info.split(/\s+/);
        blocks.push({ line: open.line, language, tags, code: open.lines.join("\n") });
        open = undefined;
      } else open.lines.push(line.slice(Math.min(open.indent, line.length - line.trimStart().length)));
      return;
    }
    if (fence !== null) {
      open = { line: index + 1, fence: fence[2]!, info: fence[3]!.trim(), indent: fence[1]!.length, lines: [] };
      return;
    }
    const heading = /^#{1,6} +(.*?)\s*#*$/.exec(line);
    if (heading !== null) anchors.add(slug(heading[1]!));
    for (const match of line.matchAll(/<a (?:id|name)="([^"]+)"/g)) anchors.add(match[1]!);
    for (const match of withoutCode(line).matchAll(/\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)|^\[[^\]]+\]:\s+(\S+)|(?:src|href)="([^"]+)"/g)) {
      links.push({ line: index + 1, target: match[1] ?? match[2] ?? match[3]! });
    }
  });
  if (open !== undefined) throw new Error(`${path}:${open.line} opens a block that is never closed`);
  return { path, text, blocks, links, anchors };
}

/** A line with what is in backticks blanked, so that code is not taken for links; link texts in backticks stay links. */
function withoutCode(line: string): string {
  return line.replace(/(`+)(?!`)(.*?)(?<!`)\1(?!`)/g, (code) => "x".repeat(code.length));
}
