/** Completes examples of doc comments: they leave out the imports, which follow from the names they use. */
import { parseSync } from "oxc-parser";
import { type ApiSymbol, childrenOf, nameOf, type Node } from "./generate_docs_exports.ts";

/** What can be imported, by specifier. */
export type Importable = ReadonlyMap<string, ReadonlyMap<string, ApiSymbol>>;

/** The example with an import line for every exported name it uses and does not declare. */
export function withImports(code: string, importable: Importable): string {
  const { program, errors } = parseSync("example.ts", code, { sourceType: "module" });
  if (errors.length > 0) throw new Error(`Cannot parse an example: ${errors[0]!.message}\n${code}`);
  const { used, declared } = namesIn(program as unknown as Node);
  const free = [...used].filter((name) => !declared.has(name));
  const lines: string[] = [];
  const taken = new Set<string>();
  for (const [specifier, symbols] of importable) {
    const names = free.filter((name) => symbols.has(name) && !taken.has(name)).sort((a, b) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1));
    for (const name of names) taken.add(name);
    const list = names.map((name) => (["interface", "type"].includes(symbols.get(name)!.kind) ? `type ${name}` : name));
    if (list.length > 0) lines.push(`import { ${list.join(", ")} } from "${specifier}";`);
  }
  if (lines.length === 0) return code;
  return code.startsWith("import ") ? `${lines.join("\n")}\n${code}` : `${lines.join("\n")}\n\n${code}`;
}

/** Names an example refers to, and names it declares itself. */
function namesIn(program: Node): { readonly used: Set<string>; readonly declared: Set<string> } {
  const used = new Set<string>();
  const declared = new Set<string>();
  const visit = (node: Node): void => {
    switch (node.type) {
      case "Identifier":
        used.add(nameOf(node));
        break;
      case "VariableDeclarator":
        for (const name of bound(node["id"] as Node)) declared.add(name);
        break;
      case "FunctionDeclaration":
      case "FunctionExpression":
      case "ArrowFunctionExpression":
        if (node["id"] != null) declared.add(nameOf(node["id"] as Node));
        for (const param of node["params"] as Node[]) for (const name of bound(param)) declared.add(name);
        break;
      case "ClassDeclaration":
        declared.add(nameOf(node["id"] as Node));
        break;
      case "ImportDeclaration":
        for (const specifier of node["specifiers"] as Node[]) declared.add(nameOf(specifier["local"] as Node));
        return;
      case "MemberExpression":
        visit(node["object"] as Node);
        if (node["computed"] === true) visit(node["property"] as Node);
        return;
      case "Property":
        if (node["computed"] === true) visit(node["key"] as Node);
        visit(node["value"] as Node);
        return;
    }
    for (const child of childrenOf(node)) visit(child);
  };
  visit(program);
  return { used, declared };
}

/** Names a pattern binds. */
function bound(pattern: Node): string[] {
  if (pattern.type === "Identifier") return [nameOf(pattern)];
  if (pattern.type === "Property") return bound(pattern["value"] as Node);
  if (pattern.type === "AssignmentPattern") return bound(pattern["left"] as Node);
  return childrenOf(pattern).flatMap(bound);
}
