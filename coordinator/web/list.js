// The list of the questions that wait.
import { call } from "./api.js";
import { foreign, h } from "./dom.js";
import { fromWhom } from "./question.js";
import { kind } from "./receipt.js";
import { brief, span } from "./text.js";

/** How much of a text the list shows, in characters. */
const BRIEF = 160;

/** How often the ages are written anew. */
const AGE = 15_000;

/** Shows the list in `view`. @param {HTMLElement} view @returns {import("./stream.js").View} */
export function listView(view) {
  const list = h("ol", { id: "waiting" });
  const empty = h("p", { id: "empty", hidden: true }, "Nothing waits for you.");
  /** @type {any[]} */
  let questions = [];
  /** The element of each question that is shown. @type {Map<string, HTMLElement>} */
  const shown = new Map();

  // An element that stays is not touched: a press would be lost with its element, and so would the focus.
  function draw() {
    const keys = new Set(questions.map(key));
    for (const [of, one] of shown) {
      if (keys.has(of)) continue;
      one.remove();
      shown.delete(of);
    }
    let next = list.firstElementChild;
    for (const message of questions) {
      const one = shown.get(key(message)) ?? item(message);
      shown.set(key(message), one);
      const age = one.querySelector(".age");
      if (age) age.textContent = span(Date.now() - new Date(message.timestamp).getTime());
      if (one === next) next = one.nextElementSibling;
      else list.insertBefore(one, next);
    }
    empty.hidden = questions.length > 0;
  }

  async function look() {
    const all = [];
    let page;
    do {
      const from = page ? `?cursor=${page.next_cursor}` : "";
      page = await call("GET", `/api/v1/questions${from}`);
      all.push(...page.questions);
    } while (page.next_cursor);
    questions = all;
    if (!list.isConnected) view.replaceChildren(h("h1", {}, "Questions that wait for you"), empty, list);
    document.title = `${questions.length} waiting - c3po`;
    draw();
  }

  setInterval(draw, AGE);
  return { look, concerns: () => true };
}

/** Tells questions apart, also if an id is used once more. @param {any} message */
const key = (message) => `${message.id} ${message.timestamp}`;

/** Returns the element of a question, with room for its age. @param {any} message */
function item(message) {
  const request = message.question.request;
  const text = message.message;
  // The text of a request mostly begins with its tool.
  const about = request && !text?.startsWith(request.tool) ? `${request.tool}: ${text}` : text;
  return h("li", {}, h("a", { href: `/q/${message.id}` },
    h("span", { class: "from" }, fromWhom(message), ` ${kind(message)} · `, h("span", { class: "age" })),
    foreign("span", brief(about ?? message.question.parts[0].text, BRIEF)),
  ));
}
