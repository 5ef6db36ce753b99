// How far a question and its answer got, in words.
import { span } from "./text.js";

/** How long a session may take to accept a verdict before its person is warned. */
export const TAKEN_WITHIN = 10_000;

/** @typedef {{stage: string, at: string, via?: string}} Step */
/** @typedef {{text: string, state: "done" | "waits" | "failed"}} Line */
/** @typedef {{message: any, stage: string, history: Step[], reply?: any, correction?: any, correctable_until?: string}} Asked */

/** @type {Record<string, string>} */
const WAYS = {
  page: "on the page",
  ntfy: "by a notification",
  dialog: "in the session's dialog",
  terminal: "on a terminal",
  rest: "over REST",
};

/** @param {Asked} asked @param {string} stage */
function reachedBy(asked, stage) {
  return asked.history.some((step) => step.stage === stage);
}

/** Returns whether the question can be answered. @param {Asked} asked */
export function isOpen(asked) {
  return !asked.reply && !["withdrawn", "expired", "answered", "taken", "applied"].includes(asked.stage);
}

/** Returns whether a person may correct the answer, which a triage agent gave. @param {Asked} asked @param {Date} now */
export function isCorrectable(asked, now) {
  return asked.correctable_until !== undefined && now < new Date(asked.correctable_until);
}

/** Returns a time of today as hours and minutes, else with its date. @param {string} at @param {Date} now */
function clock(at, now) {
  const time = new Date(at);
  const isToday = time.toDateString() === now.toDateString();
  return isToday ? time.toLocaleTimeString() : time.toLocaleString();
}

/** Returns the word for a reply with this verdict, or without one. @param {any} verdict */
function decided(verdict) {
  if (!verdict) return "Answered";
  if (verdict.decision !== "allow") return "Denied";
  return verdict.suggestion === undefined ? "Allowed" : "Allowed, with a rule,";
}

/**
 * Returns who answered, by which way and when; or why nobody can.
 * @param {Asked} asked
 * @param {Date} now
 */
export function outcome(asked, now) {
  const reply = asked.reply;
  if (reply) return `${decided(reply.answer?.verdict)} ${authorship(reply, now)}`;
  const end = asked.history.at(-1);
  if (asked.stage === "expired") return `Nobody answered in time. It expired ${end ? clock(end.at, now) : ""}.`;
  if (asked.stage !== "withdrawn" || !end) return "";
  /** @type {Record<string, string>} */
  const why = {
    terminal: "It was decided at the terminal",
    session_end: "The session that asked has ended",
    time_out: "The time to decide elsewhere is over, and only the session's terminal can still decide",
    tool_call: "The agent withdrew it",
  };
  return `${why[end.via ?? ""] ?? "It is not asked any more"}, ${clock(end.at, now)}.`;
}

/** Returns who corrected the answer, by which way and when; or nothing. @param {Asked} asked @param {Date} now */
export function corrected(asked, now) {
  return asked.correction ? `Corrected ${authorship(asked.correction, now)}` : "";
}

/** @param {any} reply @param {Date} now */
function authorship(reply, now) {
  const by = reply.answer?.by ?? reply.from_agent;
  const way = WAYS[reply.answer?.via] ?? "";
  return `by ${by}${way && ` ${way}`}, ${clock(reply.timestamp, now)}.`;
}

/**
 * Returns the steps of an answer, or of its correction, as the person reads them, in order, each with whether it is done. `ofReply`
 * is the history of that message, which is the evidence for an answer in words.
 * @param {Asked} asked
 * @param {Step[]} ofReply
 * @param {Date} now
 * @returns {Line[]}
 */
export function progress(asked, ofReply, now) {
  if (!asked.reply) return [];
  const verdict = asked.reply.answer?.verdict;
  const sent = line(true, `Sent, ${clock((asked.correction ?? asked.reply).timestamp, now)}`, "");
  if (!verdict) {
    const reached = (/** @type {string[]} */ stages) => ofReply.some((step) => stages.includes(step.stage));
    return [
      sent,
      line(reached(["in_session", "seen"]), "The session has the answer", "The session does not have the answer yet"),
      line(reached(["seen"]), "The agent went on with it", "The agent has not gone on yet"),
    ];
  }
  const isApplied = reachedBy(asked, "applied");
  const isTaken = isApplied || reachedBy(asked, "taken");
  const waited = now.getTime() - new Date(asked.reply.timestamp).getTime();
  const taken = line(isTaken, "The session took it", "The session has not taken it yet");
  if (!isTaken && waited > TAKEN_WITHIN) {
    taken.state = "failed";
    taken.text = `The session did not take it within ${span(TAKEN_WITHIN)}. Look at the session: nothing proves that the verdict counts.`;
  }
  return [sent, taken, lastLine(asked, verdict.decision === "allow", isApplied)];
}

/** @param {Asked} asked @param {boolean} isAllowed @param {boolean} isApplied */
function lastLine(asked, isAllowed, isApplied) {
  if (!isAllowed) return line(isApplied, "The session went on without it", "The session has not gone on yet");
  const runs = asked.message.question?.kind === "permission";
  return runs ? line(isApplied, "It ran", "It has not run yet") : line(isApplied, "The session went on with it", "The session has not gone on yet");
}

/** @param {boolean} isDone @param {string} done @param {string} waits @returns {Line} */
function line(isDone, done, waits) {
  return isDone ? { text: done, state: "done" } : { text: waits, state: "waits" };
}

/** Returns the kind of a question in words. @param {Asked["message"]} message */
export function kind(message) {
  /** @type {Record<string, string>} */
  const words = { permission: "wants to use a tool", choice: "asks you to choose", plan: "asks whether you accept a plan" };
  return words[message.question?.kind] ?? "asks";
}
