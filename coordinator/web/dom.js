// Makes elements. Texts become text nodes, never markup.
import { pieces } from "./text.js";

/**
 * Makes an element. Attributes that are functions are listeners; `true` sets an attribute, `false` and null leave it out.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, unknown>} attributes
 * @param {...(Node | string | null | undefined | false | (Node | string)[])} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, /** @type {EventListener} */ (value));
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/**
 * Shows a text of another side in a box of its own, which its directions and marks cannot leave.
 * @param {"p" | "pre" | "span" | "bdi"} name
 * @param {string} text
 * @param {boolean} [strict]
 */
export function foreign(name, text, strict = false) {
  const shown = pieces(text, strict).map((piece) => (piece.isEscape ? h("span", { class: "escape" }, piece.text) : piece.text));
  return h(name, { class: "foreign", dir: "auto" }, shown);
}

/** Returns an element of the page. @param {string} id */
export function part(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no ${id}`);
  return found;
}
