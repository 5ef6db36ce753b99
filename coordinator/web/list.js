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

  function draw() {
    const now = Date.now();
    const focused = document.activeElement?.getAttribute("href");
    list.replaceChildren(...questions.map((message) => item(message, now)));
    [...list.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
    empty.hidden = questions.length > 0;
  }

  async function look() {
    ({ questions } = await call("GET", "/api/v1/questions"));
    if (!list.isConnected) view.replaceChildren(h("h1", {}, "Questions that wait for you"), empty, list);
    document.title = `${questions.length} waiting - c3po`;
    draw();
  }

  setInterval(draw, AGE);
  return { look, concerns: () => true };
}

/** @param {any} message @param {number} now */
function item(message, now) {
  const age = span(now - new Date(message.timestamp).getTime());
  const request = message.question.request;
  const text = message.message;
  // The text of a request mostly begins with its tool.
  const about = request && !text?.startsWith(request.tool) ? `${request.tool}: ${text}` : text;
  return h("li", {}, h("a", { href: `/q/${message.id}` },
    h("span", { class: "from" }, fromWhom(message), ` ${kind(message)} · ${age}`),
    foreign("span", brief(about ?? message.question.parts[0].text, BRIEF)),
  ));
}
