import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { table, textWidth } from "../../lib/text/table.ts";

test("a table sets columns two spaces apart, numbers to the right, nothing behind the last text of a line", () => {
  const text = table([{ title: "name" }, { title: "size", align: "right" }, { title: "note" }], [["x", "10", ""], ["weights", "4096", "constant"]]);
  assert.equal(text, "name     size  note\nx          10\nweights  4096  constant");
});

test("styles take no room, wide characters two columns, cells may have lines", () => {
  const bold = (text: string) => `\u001b[1m${text}\u001b[22m`;
  assert.equal(table([{ title: "a" }, { title: "b" }], [["日本", "1"], ["x\ny", "2"]], bold), `${bold("a")}     ${bold("b")}\n日本  1\nx     2\ny`);
  assert.equal(table([{ title: "only" }], []), "only");
});

test("the width of a text is what a terminal makes of it", () => {
  const widths: readonly (readonly [string, number])[] = [
    ["", 0], ["abc", 3], ["–", 1], ["0.5 µs", 6], ["é", 1], ["e\u0301", 1], ["한글", 4], ["😀", 2], ["\u001b[31mred\u001b[39m", 3], ["│┃█", 3], ["ﾊ", 1], ["，", 2],
  ];
  for (const [text, width] of widths) assert.equal(textWidth(text), width, JSON.stringify(text));
});

test("every cell begins in its column, whatever the text", () => {
  const cell = fc.string({ unit: fc.constantFrom("a", "é", "日", "–", "😀", " ", "7"), maxLength: 6 }).map((text) => `<${text}>`);
  fc.assert(fc.property(fc.array(fc.tuple(cell, cell), { maxLength: 6 }), (rows) => {
    const lines = table([{ title: "<l>" }, { title: "<r>", align: "right" }], rows).split("\n");
    const width = Math.max(...lines.map(textWidth));
    assert.equal(lines.length, rows.length + 1);
    for (const [index, line] of lines.entries()) {
      assert.equal(textWidth(line), width);
      const [left, right] = index === 0 ? ["<l>", "<r>"] : rows[index - 1]!;
      assert.ok(line.startsWith(left) && line.endsWith(right), line);
    }
  }));
});

test("a table that is too wide loses the middle of its longest texts, never numbers or styled text", () => {
  const long = "value_sg0000_identity_27_CRSM_of_a_very_long_name";
  const rows = [[long, "123456789012345", "short"], ["x", "1", "\u001b[31ma styled text that is longer than it may be\u001b[39m"]];
  const columns = [{ title: "name" }, { title: "bytes", align: "right" as const }, { title: "note" }];
  const lines = table(columns, rows.slice(0, 1), { width: 45 }).split("\n");
  assert.ok(lines.every((line) => textWidth(line) <= 45), lines.join("\n"));
  assert.match(lines[1]!, /^value_sg00…_long_name {2}123456789012345 {2}short$/);
  assert.ok(table(columns, rows, { width: 45 }).includes("a styled text that is longer than it may be"));
  assert.equal(table(columns, rows, { width: 500 }), table(columns, rows));
  // Numbers alone can be wider than there is room.
  assert.equal(table([columns[1]!], [["123456789012345"]], { width: 5 }), "          bytes\n123456789012345");
});
