// Texts of other sides: nothing invisible stays invisible, and an input is shown as a whole.
import assert from "node:assert/strict";
import { test } from "node:test";
import { brief, members, pieces, ruleInWords, span } from "../../coordinator/web/text.js";

const shown = (text, strict) => pieces(text, strict).map((piece) => (piece.isEscape ? `[${piece.text}]` : piece.text)).join("");

test("characters that control or move a text become escapes", () => {
  for (const strict of [true, false]) {
    assert.equal(shown("a\u202eb\u0007c\u2066d\ufeff\u0000", strict), "a[U+202E]b[U+0007]c[U+2066]d[U+FEFF][U+0000]");
    assert.equal(shown("one\n\ttwo", strict), "one\n\ttwo");
    assert.equal(shown("Küche & 日本語", strict), "Küche & 日本語");
  }
});

test("a request shows every character that has no ink", () => {
  const hidden = ["\u200b", "\u200d", "\u00ad", "\u00a0", "\u2003", "\u3164", "\u2800", "\u034f", "\ufe0f", "\u{e0041}", "\u180e", "\u115f", "\ud800", "\r"];
  for (const c of hidden) {
    assert.match(shown(`a${c}b`, true), /^a\[U\+[0-9A-F]{4,5}\]b$/, c.codePointAt(0).toString(16));
  }
  assert.equal(shown("می\u200cخواهم 👩\u200d👧", false), "می\u200cخواهم 👩\u200d👧");
  assert.equal(shown("a\r\nb", true), "a[U+000D]\nb");
  assert.equal(shown("a\r\nb", false), "a\nb");
});

test("the blanks and the ends of lines that move a text out of sight are counted", () => {
  assert.equal(shown(`a${" ".repeat(6_000)}b`, true), "a[6000 blanks]b");
  assert.equal(shown(`a${"\t".repeat(17)}b`, true), "a[17 blanks]b");
  assert.equal(shown(`a${"\n".repeat(1_500)}b`, true), "a[1500 line ends]\nb");
  assert.equal(shown("a\n \n\t\n\n\nb", true), "a[5 line ends]\nb");
  assert.equal(shown(`${" ".repeat(81)}b`, true), "[81 blanks]b");
  for (const usual of [`a${" ".repeat(16)}b`, `a\n${" ".repeat(80)}b`, "a\n\n\n\nb"]) assert.equal(shown(usual, true), usual);
  assert.equal(shown(`a${" ".repeat(6_000)}b`, false), "a[6000 blanks]b");
  assert.equal(shown(`a${"\n".repeat(1_500)}b`, false), "a[1500 line ends]\nb");
  for (const c of ["\u00a0", "\u3000", "\u2003", "\u2800", "\u3164", "\u200b"]) {
    assert.equal(shown(`a${`\n${c}`.repeat(500)}\nb`, false), "a[501 line ends]\nb");
    assert.equal(shown(`a${c.repeat(3_000)}b`, false), "a[3000 blanks]b");
  }
  const columns = `a${" ".repeat(40)}b\r\n\r\n\r\nc`;
  assert.equal(shown(columns, false), columns.replaceAll("\r", ""));
});

test("a letter has no pile of marks", () => {
  for (const strict of [true, false]) {
    assert.equal(shown(`a${"\u0301".repeat(6)}b`, strict), `a${"\u0301".repeat(4)}[U+0301][U+0301]b`);
    assert.equal(shown("เนื้อที่ ệ", strict), "เนื้อที่ ệ");
  }
});

test("an input is split only if JSON repeats it exactly", () => {
  const check = (input, expected) => assert.deepEqual(members(input), expected);
  check('{"command":"a\\nb","timeout":5}', [["command", "a\nb"], ["timeout", "5"]]);
  for (const odd of ['{"a":1,"a":2}', '{"a":1e400}', '{"a":1.0}', '{"a": 1}', "[1]", '"text"', "null", "{", '{"__proto__":1}']) {
    check(odd, odd === '{"__proto__":1}' ? [["__proto__", "1"]] : [["", odd]]);
  }
  check("{}", []);
});

test("a text in one line is cut at a character", () => {
  assert.equal(brief(" a\n b ", 10), "a b");
  assert.equal(brief("👩👩👩👩", 3), "👩👩…");
});

test("durations and rules are in words", () => {
  assert.deepEqual([0, 59_000, 61_000, 3_600_000, 49 * 3_600_000].map(span), ["0 s", "59 s", "1 min", "1 h", "2 days"]);
  const rules = [{ toolName: "Bash", ruleContent: "make:*" }, { toolName: "Read" }];
  assert.equal(ruleInWords({ type: "addRules", rules }), "Bash(make:*), Read");
  assert.equal(ruleInWords({ type: "setMode", mode: "acceptEdits" }), "the mode acceptEdits");
  for (const odd of [null, 1, {}, { type: "addRules", rules: [] }, { type: "addRules", rules: [{}] }, { type: "addRules", rules: "x" }]) {
    assert.equal(ruleInWords(odd), null);
  }
});
