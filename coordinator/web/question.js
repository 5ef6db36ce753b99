// One question: its text, the form to answer it, and the outcome of the answer.
import { verdictForm, wordsForm } from "./answer.js";
import { call, idempotencyKey, Refused } from "./api.js";
import { foreign, h } from "./dom.js";
import { report } from "./presence.js";
import { corrected, isCorrectable, isOpen, kind, outcome, progress, TAKEN_WITHIN } from "./receipt.js";
import { loginFor } from "./paths.js";
import { members, span } from "./text.js";

/** How often the age of the question is written anew. */
const AGE = 15_000;

/** @typedef {import("./receipt.js").Asked} Asked */
/** @typedef {import("./receipt.js").Step} Step */

/**
 * Shows a question in `view`.
 * @param {string} id
 * @param {HTMLElement} view
 * @returns {import("./stream.js").View}
 */
export function questionView(id, view) {
  const path = `/api/v1/questions/${encodeURIComponent(id)}`;
  const age = h("span", { class: "note", id: "age" });
  const problem = h("p", { class: "error", role: "alert", id: "problem", hidden: true });
  const below = h("div", { id: "below" });
  const correct = h("section", { id: "correct", "aria-labelledby": "correct-title", hidden: true },
    h("h2", { id: "correct-title" }, "Correct this answer"),
    h("p", { class: "note" }, "An agent gave it, not a person. The agent that asked gets your answer as a correction."),
  );
  /** @type {Asked | null} */
  let asked = null;
  /** @type {Step[]} */
  let ofReply = [];
  /** @type {import("./answer.js").Form | null} */
  let form = null;
  /** Why this person cannot answer. @type {HTMLElement | null} */
  let missing = null;
  /** The last answer that was sent, and its key: the same answer again is the same request. */
  let sent = { content: "", key: "" };
  let isSending = false;
  /** The outcome that is shown. The same one is not drawn again, because screen readers would read it again. */
  let drawn = "";

  const showProblem = (/** @type {string} */ text) => {
    problem.textContent = text;
    problem.hidden = text === "";
  };

  async function send(/** @type {object} */ content) {
    if (isSending || !form) return;
    isSending = true;
    const isCorrection = asked !== null && !isOpen(asked);
    form.activate(false);
    showProblem("");
    const text = JSON.stringify(content);
    if (sent.content !== text) sent = { content: text, key: idempotencyKey() };
    try {
      await call("POST", `${path}/answer`, { ...content, via: "page" }, { "Idempotency-Key": sent.key });
    } catch (error) {
      const isOver = error instanceof Refused && ["ALREADY_ANSWERED", "WITHDRAWN", "TOO_LATE"].includes(error.code);
      const lost = isCorrection ? "Your correction was not used: another one was first, or it is too late." : "Your answer was not used: the question is over.";
      showProblem(isOver ? lost : String(/** @type {Error} */ (error).message));
    }
    isSending = false;
    await look().catch(() => {});
    form?.activate(true);
  }

  function build(/** @type {Asked} */ first, /** @type {any} */ me) {
    const { message } = first;
    const { question } = message;
    const text = h("div", { id: "text" }, textOf(message));
    const end = h("div", { id: "end", "aria-hidden": "true" });
    const input = question.request ? [requestPart(question.request), end] : [];
    view.replaceChildren(
      h("p", { class: "from" }, fromWhom(message), " ", kind(message), " · ", age),
      h("h1", { class: "unseen" }, question.request ? "Request of a session" : "Question"),
      text, ...input, problem, below, correct,
    );
    missing = missingRight(question, me);
    if (isOpen(first)) report(id, text);
    if (isOpen(first) || first.correctable_until) form = question.request ? verdictForm(question, end, send) : wordsForm(question, send);
  }

  /** Puts the form where it belongs. It moves with its texts, and becomes active again after a moment. @param {HTMLElement} to */
  function place(to) {
    if (!form || to.contains(missing ?? form.form)) return;
    form.activate(false);
    to.append(missing ?? form.form);
    if (!missing && !isSending) form.activate(true);
  }

  function draw() {
    if (!asked) return;
    const now = new Date();
    age.textContent = `${span(now.getTime() - new Date(asked.message.timestamp).getTime())} ago`;
    document.title = `${asked.message.from_agent} ${kind(asked.message)} - c3po`;
    if (isOpen(asked)) return place(below);
    correct.hidden = !isCorrectable(asked, now);
    if (correct.hidden) form = null;
    place(correct);
    drawEnd(asked, now);
  }

  function drawEnd(/** @type {Asked} */ ended, /** @type {Date} */ now) {
    const steps = progress(ended, ofReply, now);
    const ends = [outcome(ended, now), corrected(ended, now)];
    const shape = JSON.stringify([ends, steps]);
    if (shape === drawn) return;
    drawn = shape;
    const verdict = ended.reply?.answer?.verdict;
    const said = verdict ? verdict.text : ended.reply?.response;
    const lines = steps.map((one) => h("li", { class: one.state }, one.text));
    below.replaceChildren(
      h("p", { id: "outcome", role: "status" }, ends[0]),
      said ? foreign("p", said) : "",
      ends[1] ? h("p", { id: "corrected", role: "status" }, ends[1]) : "",
      ended.correction ? foreign("p", ended.correction.message) : "",
      lines.length > 0 ? h("ol", { id: "progress", "aria-label": "How far the answer got" }, lines) : "",
    );
  }

  async function look() {
    const me = asked ? null : await call("GET", "/api/v1/me");
    const found = await call("GET", path);
    // An id may be used once more, long after its question has ended.
    if (asked && asked.message.timestamp !== found.message.timestamp) {
      location.reload();
      return new Promise(() => {});
    }
    const isFirst = asked === null;
    asked = found;
    const reply = found.reply;
    if (reply && !reply.answer?.verdict) ofReply = await replyHistory((found.correction ?? reply).id);
    if (isFirst) build(found, me);
    draw();
    const answered = reply ? new Date(reply.timestamp).getTime() : 0;
    const rest = answered + TAKEN_WITHIN - Date.now();
    if (rest > 0) setTimeout(draw, rest + 100);
  }

  setInterval(draw, AGE);
  function concerns(/** @type {any} */ event) {
    if (event.about === id || [id, asked?.reply?.id, asked?.correction?.id].includes(event.message_id)) return true;
    // A correction is a message of its own.
    return Boolean(asked?.correctable_until) && event.event === "accepted" && event.to === asked?.message.from_agent;
  }

  return { look, concerns };
}

/** Returns the stages of a reply, or none if they cannot be read. @param {string} id @returns {Promise<Step[]>} */
async function replyHistory(id) {
  const path = `/api/v1/messages/${encodeURIComponent(id)}/receipt`;
  const tracked = await call("GET", path, undefined, { "X-Agent-ID": "human" }).catch(() => null);
  return tracked?.history ?? [];
}

/** @param {any} message */
export function fromWhom(message) {
  return h("strong", {}, foreign("bdi", message.from_host ? `${message.from_agent}@${message.from_host}` : message.from_agent, true));
}

/** @param {any} message */
function textOf(message) {
  const text = message.message ?? message.question.parts.map((/** @type {any} */ part) => part.text).join("\n");
  const more = message.question.parts.length === 1 && !message.question.request ? message.question.parts[0].text : text;
  return [
    message.title ? h("h2", {}, foreign("bdi", message.title)) : null,
    foreign("p", text),
    more !== text ? foreign("p", more) : null,
    message.context ? h("details", { open: true }, h("summary", {}, "Background"), foreign("pre", message.context)) : null,
  ].filter((child) => child !== null);
}

/** Shows a request of a client as a whole. @param {any} request */
function requestPart(request) {
  const input = members(request.input).flatMap(([name, value]) => [
    name === "" ? null : h("dt", {}, foreign("bdi", name, true)),
    h("dd", {}, foreign("pre", value, true)),
  ]);
  return h("section", { id: "request", "aria-label": "The request" },
    h("p", {}, "Tool: ", h("strong", {}, foreign("bdi", request.tool, true)),
      ...(request.subagent ? [", used by the subagent ", h("strong", {}, foreign("bdi", request.subagent, true))] : [])),
    h("dl", { class: "input" }, input.filter((child) => child !== null)),
  );
}

/** Returns why this person cannot answer, or null. @param {any} question @param {any} me */
function missingRight(question, me) {
  const right = question.request ? "verdict" : "answer";
  const isMissing = !me.rights.includes(right) || (question.needs_person && !me.login);
  if (!isMissing) return null;
  const why = me.login ? `Your login has the scope ${me.login.scope}, which may not decide this. ` : "Only a person who has logged in may decide this. ";
  return h("p", { id: "missing" }, why, h("a", { href: loginFor(location.pathname) }, "Log in"));
}
