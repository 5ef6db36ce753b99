// Receipts in words: a page claims nothing that the history does not have.
import assert from "node:assert/strict";
import { test } from "node:test";
import { corrected, isCorrectable, isOpen, outcome, progress } from "../../coordinator/web/receipt.js";

const NOW = new Date("2026-01-15T10:30:00Z");
const at = "2026-01-15T10:29:55Z";
const asked = (history, reply) => ({
  message: {}, stage: history.at(-1)?.stage ?? "stored", history: history.map((step) => ({ at, ...step })), reply,
});
const reply = (verdict, timestamp = at) => ({ timestamp, from_agent: "human", answer: { by: "Ann", via: "page", verdict } });
const states = (question, ofReply = [], now = NOW) => progress(question, ofReply, now).map((step) => step.state);

test("a question is open until it is answered, withdrawn or expired", () => {
  assert.ok(isOpen(asked([{ stage: "stored" }, { stage: "seen" }])));
  for (const stage of ["withdrawn", "expired", "answered", "taken", "applied"]) assert.ok(!isOpen(asked([{ stage }])));
  assert.ok(!isOpen(asked([{ stage: "seen" }], reply())));
});

test("an outcome names who decided, how and why", () => {
  const check = (question, expected) => assert.match(outcome(question, NOW), expected);
  check(asked([{ stage: "answered" }], reply()), /^Answered by Ann on the page, /);
  check(asked([{ stage: "answered" }], reply({ decision: "allow" })), /^Allowed by Ann/);
  check(asked([{ stage: "answered" }], reply({ decision: "allow", suggestion: 0 })), /^Allowed, with a rule, by Ann/);
  check(asked([{ stage: "answered" }], reply({ decision: "deny" })), /^Denied by Ann/);
  check(asked([{ stage: "answered" }], { timestamp: at, from_agent: "human" }), /^Answered by human, /);
  check(asked([{ stage: "withdrawn", via: "terminal" }]), /^It was decided at the terminal, /);
  check(asked([{ stage: "withdrawn", via: "session_end" }]), /^The session that asked has ended, /);
  check(asked([{ stage: "withdrawn", via: "time_out" }]), /only the session's terminal can still decide, /);
  check(asked([{ stage: "expired" }]), /expired/);
  assert.equal(outcome(asked([{ stage: "seen" }]), NOW), "");
});

test("a verdict counts once its session took it, and is doubted after 10 seconds", () => {
  const allow = { decision: "allow" };
  const answered = { stage: "answered" };
  assert.deepEqual(states(asked([answered], reply(allow))), ["done", "waits", "waits"]);
  const late = new Date("2026-01-15T10:30:05.001Z");
  assert.deepEqual(states(asked([answered], reply(allow)), [], late), ["done", "failed", "waits"]);
  const taken = [answered, { stage: "taken" }];
  assert.deepEqual(states(asked(taken, reply(allow)), [], late), ["done", "done", "waits"]);
  assert.deepEqual(states(asked([...taken, { stage: "applied" }], reply(allow))), ["done", "done", "done"]);
  assert.deepEqual(states(asked([answered, { stage: "applied" }], reply(allow))), ["done", "done", "done"]);
});

test("an answer in words is followed by the receipt of the reply", () => {
  const answered = asked([{ stage: "answered" }], reply());
  const of = (...stages) => states(answered, stages.map((stage) => ({ stage, at })));
  assert.deepEqual(of(), ["done", "waits", "waits"]);
  assert.deepEqual(of("stored", "on_host"), ["done", "waits", "waits"]);
  assert.deepEqual(of("in_session"), ["done", "done", "waits"]);
  assert.deepEqual(of("in_session", "seen"), ["done", "done", "done"]);
  assert.deepEqual(states(asked([{ stage: "stored" }])), []);
});

test("an answer is correctable until its time is over, and the steps are those of the correction", () => {
  const answered = asked([{ stage: "answered" }], { ...reply(), answer: { by: "triage/helper", via: "reply" } });
  assert.ok(!isCorrectable(answered, NOW));
  assert.equal(corrected(answered, NOW), "");
  const until = { ...answered, correctable_until: NOW.toISOString() };
  assert.ok(isCorrectable(until, new Date(NOW.getTime() - 1)));
  assert.ok(!isCorrectable(until, NOW));
  const later = { ...answered, correction: reply(undefined, "2026-01-15T10:29:59Z") };
  assert.match(outcome(later, NOW), /^Answered by triage\/helper, /);
  assert.match(corrected(later, NOW), /^Corrected by Ann on the page, .*59/);
  assert.match(progress(later, [], NOW)[0].text, /59/);
});
