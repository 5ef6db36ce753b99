// Texts of agents and clients as people can trust them: every character that is invisible or moves others is shown as an escape.

/** Controls, line separators, direction marks, overrides and isolates, and the byte order mark; not tabs and line ends. */
const OBEYED = /(?![\n\t])[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/u;
/** The same, every other invisible character, and every space but the plain one. */
const INVISIBLE = /(?![\n\t ])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/u;

/** So many blanks inside a line or at its beginning, or so many ends of lines, that what follows them is out of sight. */
const GAP = /((?<=\S)[ \t]{17,}|[ \t]{81,}|\n(?:[ \t]*\n){4,})/u;
/** The same where columns of words may be apart; blanks are all characters without ink. */
const WIDE_GAP = /([\p{Z}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800\t\r\v\f]{81,}|\n(?:[\p{Z}\p{Cf}\p{Default_Ignorable_Code_Point}\u2800\t\r\v\f]*\n){4,})/u;

/** How many marks a letter may have: a higher pile leaves its box. */
const MARKS_MAX = 4;

/** @typedef {{text: string, isEscape: boolean}} Piece */

/**
 * Splits a text into pieces to be shown as they are, and escapes; gaps are counted. Joiners inside words and emoji, and columns,
 * are kept unless `strict`.
 * @param {string} text
 * @param {boolean} strict
 * @returns {Piece[]}
 */
export function pieces(text, strict) {
  const hidden = strict ? INVISIBLE : OBEYED;
  /** @type {Piece[]} */
  const found = [];
  const add = (/** @type {string} */ shown, /** @type {boolean} */ isEscape) => {
    const last = found.at(-1);
    if (last && !isEscape && !last.isEscape) last.text += shown;
    else found.push({ text: shown, isEscape });
  };
  let marks = 0;
  const parts = strict ? text.split(GAP) : text.replaceAll("\r\n", "\n").split(WIDE_GAP);
  parts.forEach((part, index) => {
    if (index % 2 === 1) {
      const ends = part.split("\n").length - 1;
      add(ends > 0 ? `${ends} line ends` : `${part.length} blanks`, true);
      if (ends > 0) add("\n", false);
      return;
    }
    for (const c of part) {
      marks = /\p{M}/u.test(c) ? marks + 1 : 0;
      const isEscape = hidden.test(c) || marks > MARKS_MAX;
      add(isEscape ? `U+${(c.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}` : c, isEscape);
    }
  });
  return found;
}

/** Returns a text in one line of at most `most` characters. @param {string} text @param {number} most */
export function brief(text, most) {
  const all = Array.from(text.replace(/\s+/gu, " ").trim());
  return all.length > most ? `${all.slice(0, most - 1).join("")}…` : all.join("");
}

/**
 * Returns the members of the input of a tool, each with its value as text. An input that JSON would not repeat exactly is shown
 * as it came.
 * @param {string} input
 * @returns {[string, string][]}
 */
export function members(input) {
  /** @type {unknown} */
  let value;
  try {
    value = JSON.parse(input);
  } catch {
    return [["", input]];
  }
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isObject || JSON.stringify(value) !== input) return [["", input]];
  return Object.entries(/** @type {object} */ (value)).map(([name, member]) => [name, asText(member)]);
}

/** @param {unknown} value */
function asText(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** Returns a duration in words. @param {number} ms */
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} days`;
}

/** Returns the words for a rule that a client offers, or null if its form is unknown. @param {any} rule */
export function ruleInWords(rule) {
  const rules = Array.isArray(rule?.rules) ? rule.rules : [];
  const names = rules.map((/** @type {any} */ one) => (one?.ruleContent ? `${one.toolName}(${one.ruleContent})` : one?.toolName));
  if (rule?.type === "addRules" && names.length > 0 && names.every((/** @type {any} */ name) => typeof name === "string")) {
    return names.join(", ");
  }
  return rule?.type === "setMode" && typeof rule.mode === "string" ? `the mode ${rule.mode}` : null;
}
