/** Finds what a module exports, through all its re-exports, with the text of each declaration. */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { type Comment, parseSync } from "oxc-parser";
import { type DocComment, parseComment } from "./generate_docs_comment.ts";

/** A syntax node as far as it is looked at here; the parser's own types name every kind. */
export interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [key: string]: unknown;
}

/** A parsed source file. */
export interface Source {
  /** Path from the root of the repository. */
  readonly path: string;
  readonly text: string;
  readonly body: readonly Node[];
  readonly comments: readonly Comment[];
}

/** A parameter of a function or method. */
export interface ApiParam {
  readonly name: string;
  /** Its type as written; empty when it follows from a default. */
  readonly type: string;
}

/** A member of a class or interface. */
export interface ApiMember {
  /** Its name, `[Symbol.dispose]` for computed ones. */
  readonly name: string;
  readonly kind: "property" | "method" | "constructor";
  /** One line of TypeScript. */
  readonly signature: string;
  readonly params: readonly ApiParam[];
  readonly doc: DocComment | undefined;
  /** Whether the body has a `throw` of its own. */
  readonly throwsItself: boolean;
}

/** An exported declaration. */
export interface ApiSymbol {
  /** Name it is exported under. */
  readonly name: string;
  readonly kind: "function" | "class" | "interface" | "type" | "const";
  /** File of the declaration. */
  readonly file: string;
  /** The declaration without bodies, as TypeScript. */
  readonly signature: string;
  readonly params: readonly ApiParam[];
  readonly members: readonly ApiMember[];
  readonly doc: DocComment | undefined;
  readonly throwsItself: boolean;
}

/** Longest initial value that is shown, in lines. */
const SHOWN_LINES = 40;

/** Reads and parses files once each. */
export function sourceReader(root: string): Reader {
  const known = new Map<string, Source>();
  return (path) => {
    let source = known.get(path);
    if (source === undefined) {
      const text = readFileSync(join(root, path), "utf8");
      const { program, comments, errors } = parseSync(path, text);
      if (errors.length > 0) throw new Error(`Cannot parse ${path}: ${errors[0]!.message}`);
      known.set(path, source = { path, text, body: program.body as unknown as Node[], comments });
    }
    return source;
  };
}

/** Reads files, and remembers what they export. */
export type Reader = (path: string) => Source;

const EXPORTS = new WeakMap<Source, ApiSymbol[]>();

/** What a module exports, in the order of its text; names re-exported twice appear once. */
export function exportsOf(read: Reader, path: string): ApiSymbol[] {
  const source = read(path);
  let known = EXPORTS.get(source);
  if (known === undefined) {
    const found = new Map<string, ApiSymbol>();
    for (const node of source.body) for (const symbol of exportedBy(read, source, node)) if (!found.has(symbol.name)) found.set(symbol.name, symbol);
    EXPORTS.set(source, known = [...found.values()]);
  }
  return known;
}

/** Interfaces and type aliases of this package that a declaration names, as its file sees them. */
export function typesNamedBy(read: Reader, symbol: ApiSymbol): ApiSymbol[] {
  const source = read(symbol.file);
  const text = [symbol.kind === "const" ? "" : symbol.signature, ...symbol.members.filter(({ kind }) => kind !== "constructor").map(({ signature }) => signature)].join("\n");
  const names = new Set(text.replace(/"[^"]*"|\/\*[\s\S]*?\*\//g, "").match(/\b[A-Z]\w*\b/g));
  return [...names].flatMap((name) => {
    const place = importedAs(source, name) ?? [source.path, name] as const;
    const found = exportsOf(read, place[0]).find((one) => one.name === place[1]);
    return found !== undefined && (found.kind === "interface" || found.kind === "type") ? [found] : [];
  });
}

/** Text of the comment a file begins with, unless it belongs to its first declaration. */
export function headerOf(source: Source): string {
  const first = source.comments[0];
  const statement = source.body[0];
  if (first === undefined || statement === undefined || first.start > statement.start || first.type !== "Block") return "";
  const belongs = !statement.type.startsWith("Import") && !statement.type.startsWith("ExportAll") && statement["source"] == null && docBefore(source, statement.start) === first;
  return belongs ? "" : parseComment(first.value).text;
}

function exportedBy(read: Reader, source: Source, node: Node): ApiSymbol[] {
  const from = (node["source"] as { readonly value: string } | null | undefined)?.value;
  const target = from === undefined ? undefined : join(dirname(source.path), from);
  if (node.type === "ExportAllDeclaration") return exportsOf(read, target!);
  if (node.type !== "ExportNamedDeclaration") return [];
  if (node["declaration"] != null) return declared(source, node, node["declaration"] as Node);
  return (node["specifiers"] as Node[]).map((specifier) => {
    const [local, exported] = [nameOf(specifier["local"] as Node), nameOf(specifier["exported"] as Node)];
    const place = target === undefined ? importedAs(source, local) : [target, local] as const;
    const symbol = place === undefined ? undefined : exportsOf(read, place[0]).find((one) => one.name === place[1]);
    if (symbol === undefined) throw new Error(`Cannot find ${local}, which ${source.path} exports`);
    return { ...symbol, name: exported };
  });
}

/** File and name behind a name that a module imports from this package. */
function importedAs(source: Source, local: string): readonly [file: string, name: string] | undefined {
  for (const node of source.body) {
    if (node.type !== "ImportDeclaration") continue;
    const specifier = (node["specifiers"] as Node[]).find((one) => nameOf(one["local"] as Node) === local);
    const from = (node["source"] as { readonly value: string }).value;
    if (specifier !== undefined && from.startsWith(".")) return [join(dirname(source.path), from), nameOf((specifier["imported"] ?? specifier["local"]) as Node)];
  }
  return undefined;
}

function declared(source: Source, statement: Node, node: Node): ApiSymbol[] {
  const doc = docOf(source, statement.start);
  const common = { file: source.path, doc, params: [], members: [], throwsItself: false };
  switch (node.type) {
    case "FunctionDeclaration":
    case "TSDeclareFunction":
      return [{ ...common, kind: "function", name: nameOf(node["id"] as Node), signature: functionText(source, node), params: paramsOf(source, node), throwsItself: throwsIn(node["body"] as Node | null) }];
    case "ClassDeclaration":
      return [{ ...common, kind: "class", name: nameOf(node["id"] as Node), signature: until(source, node, node["body"] as Node), members: membersOf(source, node) }];
    case "TSInterfaceDeclaration":
      return [{ ...common, kind: "interface", name: nameOf(node["id"] as Node), signature: until(source, node, node["body"] as Node), members: membersOf(source, node) }];
    case "TSTypeAliasDeclaration":
      return [{ ...common, kind: "type", name: nameOf(node["id"] as Node), signature: source.text.slice(node.start, node.end).replace(/;$/, "") }];
    case "VariableDeclaration":
      return (node["declarations"] as Node[]).map((one) => ({ ...common, kind: "const" as const, name: nameOf(one["id"] as Node), signature: constText(source, one) }));
    default:
      throw new Error(`Cannot describe a ${node.type} in ${source.path}`);
  }
}

function membersOf(source: Source, node: Node): ApiMember[] {
  const body = (node["body"] as Node)["body"] as Node[];
  return body.filter((member) => member.type !== "StaticBlock" && (member["key"] as Node | undefined)?.type !== "PrivateIdentifier" && member["accessibility"] !== "private")
    .map((member) => memberOf(source, member));
}

function memberOf(source: Source, member: Node): ApiMember {
  const doc = docOf(source, member.start);
  const value = member["value"] as Node | null | undefined;
  const method = member.type === "MethodDefinition" || member.type === "TSMethodSignature";
  const accessor = member["kind"] === "get" || member["kind"] === "set";
  const callable = member.type === "MethodDefinition" ? value! : member;
  const key = member["key"] as Node | undefined;
  const name = key === undefined ? member.type : member["computed"] === true ? `[${source.text.slice(key.start, key.end)}]` : source.text.slice(key.start, key.end);
  const body = member.type === "MethodDefinition" ? value!["body"] as Node | null : null;
  return {
    name, doc,
    kind: member["kind"] === "constructor" ? "constructor" : method && !accessor ? "method" : "property",
    signature: oneLine(accessor ? accessorText(source, member, value!) : memberText(source, member, body)),
    params: method && !accessor ? paramsOf(source, callable) : [],
    throwsItself: throwsIn(body),
  };
}

function memberText(source: Source, member: Node, body: Node | null): string {
  const value = member["value"] as Node | null | undefined;
  if (member.type === "PropertyDefinition" && value != null) {
    const annotated = member["typeAnnotation"] != null;
    const made = value.type === "NewExpression" ? `: ${source.text.slice((value["callee"] as Node).start, ((value["typeArguments"] as Node | null) ?? (value["callee"] as Node)).end)}` : undefined;
    const text = source.text.slice(member.start, annotated || made !== undefined ? ((member["typeAnnotation"] ?? member["key"]) as Node).end : member.end);
    return `${text}${annotated ? "" : made ?? ""}`.replace(/^override /, "");
  }
  return source.text.slice(member.start, body?.start ?? member.end).replace(/^((async|override) )+/, "");
}

function accessorText(source: Source, member: Node, value: Node): string {
  const key = member["key"] as Node;
  const type = value["returnType"] as Node | null;
  return `${member["kind"] === "get" ? "readonly " : ""}${source.text.slice(key.start, key.end)}${type == null ? "" : source.text.slice(type.start, type.end)}`;
}

function functionText(source: Source, node: Node): string {
  const body = node["body"] as Node | null;
  return source.text.slice(node.start, body?.start ?? node.end).replace(/;$/, "").trim();
}

function constText(source: Source, node: Node): string {
  const init = node["init"] as Node | null;
  const id = node["id"] as Node;
  const whole = source.text.slice(node.start, node.end);
  if (init === null || id["typeAnnotation"] != null) return `const ${source.text.slice(id.start, ((id["typeAnnotation"] ?? id) as Node).end)}`;
  return whole.split("\n").length <= SHOWN_LINES ? `const ${whole}` : `const ${whole.split("\n")[0]} …`;
}

function until(source: Source, node: Node, body: Node): string {
  return oneLine(source.text.slice(node.start, body.start));
}

function paramsOf(source: Source, node: Node): ApiParam[] {
  return (node["params"] as Node[]).map((param) => {
    const target = param.type === "AssignmentPattern" ? param["left"] as Node : param.type === "RestElement" ? param["argument"] as Node : param;
    const annotation = (param["typeAnnotation"] ?? target["typeAnnotation"]) as Node | null | undefined;
    return {
      name: target.type === "Identifier" ? nameOf(target) : "",
      type: annotation == null ? "" : source.text.slice(annotation.start, annotation.end).replace(/^:\s*/, ""),
    };
  });
}

/** Whether a body throws by itself, not in a function within it. */
function throwsIn(node: Node | null): boolean {
  if (node === null) return false;
  if (node.type === "ThrowStatement") return true;
  if (/^(Arrow)?Function|^Class/.test(node.type)) return false;
  return childrenOf(node).some(throwsIn);
}

/** The nodes right below one. */
export function childrenOf(node: Node): Node[] {
  return Object.values(node).flatMap((value) => (Array.isArray(value) ? value : [value])).filter((value): value is Node => typeof value === "object" && value !== null && typeof (value as Node).type === "string");
}

/** The doc comment right before a position. */
function docBefore(source: Source, position: number): Comment | undefined {
  const before = source.comments.findLast((comment) => comment.end <= position);
  return before !== undefined && before.type === "Block" && before.value.startsWith("*") && source.text.slice(before.end, position).trim() === "" ? before : undefined;
}

function docOf(source: Source, position: number): DocComment | undefined {
  const comment = docBefore(source, position);
  return comment === undefined ? undefined : parseComment(comment.value);
}

/** Name of an identifier or of a name in quotes. */
export function nameOf(node: Node): string {
  return String(node["name"] ?? node["value"]);
}

function oneLine(text: string): string {
  return text.replace(/\/\*\*[\s\S]*?\*\//g, "").replace(/\s*\n\s*/g, " ").replace(/[\s;]+$/, "").replace(/,\s*([)}\]])/g, " $1").replace(/\( /g, "(").replace(/ \)/g, ")").trim();
}
