// The forms by which a person answers: options and a text for each part, and verdicts on requests of a client.
import { decisive } from "./decide.js";
import { foreign, h } from "./dom.js";
import { watch } from "./presence.js";
import { ruleInWords } from "./text.js";

/** @typedef {{id: string, text: string, options?: {id: string, label: string}[], multi?: boolean, allow_text?: boolean}} Part */
/** @typedef {(content: object) => void} Send */
/** A form, and a function that makes its buttons active or not. @typedef {{form: HTMLElement, activate: (isActive: boolean) => void}} Form */

/** The longest text of an answer, as the coordinator has it. */
const TEXT_MAX = 50_000;

/**
 * Returns the form for a question in words.
 * @param {any} question
 * @param {Send} send
 * @returns {Form}
 */
export function wordsForm(question, send) {
  const fields = question.parts.map((/** @type {Part} */ part) => fieldsOf(part, question.parts.length > 1));
  const answers = () => fields.map((/** @type {Fields} */ field) => field.answer());
  /** @type {((isActive: boolean) => void)[]} */
  const buttons = [];
  const button = (/** @type {Record<string, unknown>} */ attributes, /** @type {Node | string} */ text, /** @type {() => void} */ act) => {
    const made = h("button", { type: "button", ...attributes }, text);
    buttons.push(decisive(made, act));
    return made;
  };
  const form = h("form", { submit: (/** @type {Event} */ event) => event.preventDefault() }, fields.map((/** @type {Fields} */ field) => field.box));
  const [only] = question.parts;
  const isOneTap = question.parts.length === 1 && !only.multi && only.options?.length;
  if (isOneTap) {
    const options = only.options.map((/** @type {{id: string, label: string}} */ option) =>
      button({ class: "option", "data-option": option.id }, foreign("span", option.label), () =>
        send({ parts: [{ ...fields[0].answer(), options: [option.id] }] }),
      ),
    );
    form.prepend(h("div", { class: "options", role: "group", "aria-label": "Options" }, options));
  }
  if (!isOneTap || only.allow_text) {
    form.append(button({ id: "send" }, isOneTap ? "Send the text" : "Send", () => send({ parts: answers() })));
  }
  return { form, activate: (isActive) => buttons.forEach((activate) => activate(isActive)) };
}

/** @typedef {{box: HTMLElement, answer: () => {id: string, options?: string[], text?: string}}} Fields */

/** @param {Part} part @param {boolean} isNamed @returns {Fields} */
function fieldsOf(part, isNamed) {
  const options = part.options ?? [];
  const type = part.multi ? "checkbox" : "radio";
  const choices = part.multi || isNamed ? options : [];
  const inputs = choices.map((option) => h("input", { type, name: `part-${part.id}`, value: option.id }));
  const labels = inputs.map((input, index) => h("label", { class: "choice" }, input, foreign("span", choices[index].label)));
  const text = part.allow_text
    ? h("textarea", { rows: 3, maxlength: TEXT_MAX, class: "answer", dir: "auto", "data-part": part.id })
    : null;
  const legend = h("legend", { class: isNamed ? "" : "unseen" }, isNamed ? foreign("span", part.text) : "Your answer");
  const words = text && h("label", { class: "words" }, options.length > 0 ? "In your own words" : "Your answer", text);
  return {
    box: h("fieldset", {}, legend, labels, words),
    answer: () => {
      const chosen = inputs.filter((input) => input.checked).map((input) => input.value);
      const typed = text?.value.trim();
      return { id: part.id, ...(chosen.length > 0 && { options: chosen }), ...(typed && { text: typed }) };
    },
  };
}

/**
 * Returns the form for a request of a client. Allowing is possible once `end`, which follows the whole input, was in view.
 * @param {any} question
 * @param {Element} end
 * @param {Send} send
 * @returns {Form}
 */
export function verdictForm(question, end, send) {
  const { request } = question;
  const fields = question.kind === "choice" ? question.parts.map((/** @type {Part} */ part) => fieldsOf(part, true)) : [];
  const verdict = (/** @type {object} */ more) => ({ request_hash: request.hash, ...more });
  const allow = (/** @type {object} */ more = {}) => {
    const parts = fields.map((/** @type {Fields} */ field) => field.answer());
    send({ ...(parts.length > 0 && { parts }), verdict: verdict({ decision: "allow", ...more }) });
  };
  const reason = h("textarea", { id: "reason", rows: 2, maxlength: TEXT_MAX, dir: "auto" });
  const deny = h("button", { type: "button", id: "deny", class: "plain" }, "Deny");
  const activateDeny = decisive(deny, () => {
    const text = reason.value.trim();
    send({ verdict: verdict({ decision: "deny", ...(text && { text }) }) });
  });
  const main = h("button", { type: "button", id: "allow" }, question.kind === "choice" ? "Send" : "Allow");
  const always = (request.suggestions ?? []).map((/** @type {any} */ rule, /** @type {number} */ index) => rulePart(rule, index, allow));
  const allowing = [decisive(main, () => allow()), ...always.map((/** @type {any} */ one) => one.activate)];
  const hint = h("p", { id: "hint", class: "note" }, "Scroll to the end of the input to allow it.");
  let isSeen = false;
  let isActive = true;
  const update = () => {
    allowing.forEach((activate) => activate(isActive && isSeen));
    activateDeny(isActive);
    hint.hidden = isSeen;
  };
  const bar = h("div", { class: "bar" }, hint, h("div", { class: "pair" }, deny, main));
  const form = h("form", { submit: (/** @type {Event} */ event) => event.preventDefault() },
    fields.map((/** @type {Fields} */ field) => field.box),
    h("label", { class: "words" }, "Reason, if you deny it", reason),
    always.map((/** @type {any} */ one) => one.box),
    bar,
  );
  // The bar covers the lower edge of the window.
  requestAnimationFrame(() => watch(end, 0, () => ((isSeen = true), update()), `0px 0px -${bar.offsetHeight}px 0px`));
  return { form, activate: (active) => ((isActive = active), update()) };
}

/**
 * Returns a rule that the client offers to add, with its exact form one tap deeper.
 * @param {any} rule
 * @param {number} index
 * @param {(more: object) => void} allow
 */
function rulePart(rule, index, allow) {
  const words = ruleInWords(rule);
  const button = h("button", { type: "button", class: "plain", "data-rule": index }, "Allow, and add this rule");
  const box = h("details", { class: "always" },
    h("summary", {}, "Always for ", words === null ? "the client's rule" : foreign("bdi", words, true), " …"),
    foreign("pre", JSON.stringify(rule, null, 2), true),
    button,
  );
  return { box, activate: decisive(button, () => allow({ suggestion: index })) };
}
