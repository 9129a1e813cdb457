/** What a terminal takes for style, not for text. */
// oxlint-disable-next-line no-control-regex -- such codes begin with one
const STYLE = /\u001b\[[0-9;]*m/g;
/** Text of which every character takes one column. */
const NARROW = /^[\x20-\x7e\u00a0-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u259f]*$/;
/** Marks that go on the character before, and format controls. */
const NO_WIDTH = /[\p{Mn}\p{Me}\p{Cf}\p{Cc}]/gu;
/** Characters that take two columns: East Asian wide and full-width forms, and emoji. */
const WIDE = /[\u1100-\u115f\u2329\u232a\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{16fe0}-\u{1b2fb}\u{1f200}-\u{1f251}\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}/gu;

/** Columns that a text takes on a terminal, without its styles. */
export function textWidth(text: string): number {
  if (NARROW.test(text)) return text.length;
  const plain = text.replace(STYLE, "").replace(NO_WIDTH, "");
  if (NARROW.test(plain)) return plain.length;
  return [...plain].length + (plain.match(WIDE)?.length ?? 0);
}
