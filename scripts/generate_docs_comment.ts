/** Reads doc comments: text, parameters, results, errors, examples. */

/** A described parameter. */
export interface DocParam {
  /** Its name, or a path such as `options.pid`. */
  readonly name: string;
  /** What it is. */
  readonly text: string;
}

/** An error a function throws. */
export interface DocThrows {
  /** The class, without braces. */
  readonly type: string;
  /** When. */
  readonly text: string;
}

/** A doc comment in parts. */
export interface DocComment {
  /** Everything before the first tag, as Markdown. */
  readonly text: string;
  /** `@param`, in order. */
  readonly params: readonly DocParam[];
  /** `@returns`, or the empty text. */
  readonly returns: string;
  /** `@throws`, in order. */
  readonly throws: readonly DocThrows[];
  /** `@example`, code only, in order. */
  readonly examples: readonly string[];
}

const TAG = /(?:^|[ \t\n])@(param|returns|throws|example)(?=[ \t\n]|$)/g;

/**
 * Parses what is between the slash-stars of a doc comment. Tags may begin anywhere in a line.
 *
 * @param value the comment without its delimiters; it begins with the second star
 */
export function parseComment(value: string): DocComment {
  const body = value.replace(/^\*/, "").split("\n").map((line) => line.replace(/^\s*\*( |$)/, "")).join("\n").trim();
  const tags = [...body.matchAll(TAG)];
  const parts = tags.map((tag, index) => ({ tag: tag[1]!, text: body.slice(tag.index + tag[0].length, tags[index + 1]?.index ?? body.length) }));
  const all = (tag: string): string[] => parts.filter((part) => part.tag === tag).map(({ text }) => text);
  return {
    text: body.slice(0, tags[0]?.index ?? body.length).trim(),
    params: all("param").map((text) => {
      const [, name, rest] = /^\s*([\w.]+)\s*(?:-\s+)?([\s\S]*)$/.exec(text) ?? ["", "", text];
      return { name: name!, text: flow(rest!) };
    }),
    returns: flow(all("returns")[0] ?? ""),
    throws: all("throws").map((text) => {
      const [, type, rest] = /^\s*\{([^}]+)\}([\s\S]*)$/.exec(text) ?? ["", "", text];
      return { type: type!, text: flow(rest!) };
    }),
    examples: all("example").map((text) => text.replace(/^[ \t]*\n/, "").replace(/^\s*```ts\n([\s\S]*?)\n```[\s\S]*$/, "$1").trimEnd()),
  };
}

/** Lines of one paragraph as one line. */
function flow(text: string): string {
  return text.trim().replace(/\s*\n\s*/g, " ");
}
