// The addresses of pages, presses that count, and the stream of events.
import assert from "node:assert/strict";
import { test } from "node:test";
import { counts } from "../../coordinator/web/decide.js";
import { loginFor, questionAt, wayBack } from "../../coordinator/web/paths.js";
import { parse } from "../../coordinator/web/stream.js";

test("the login page leads back to pages of questions alone", () => {
  const id = "web-2::human::0a1b2c3d";
  assert.equal(questionAt(`/q/${id}`), id);
  for (const path of ["/q", `/q/${id}`]) assert.equal(wayBack(new URL(loginFor(path), "http://a").search), path);
  const others = ["", "/", "//evil.example", "https://evil.example", "/q/", "/q//evil.example", "/q/../login", "javascript:alert(1)", `/q/${id}/x`, `/q/${id}#x`, "/login"];
  for (const other of others) assert.equal(wayBack(`?back=${encodeURIComponent(other)}`), null, other);
  assert.equal(wayBack(""), null);
});

test("a press counts if a person makes it once", () => {
  assert.ok(counts({ isTrusted: true, detail: 1 }, false));
  assert.ok(counts({ isTrusted: true, detail: 0 }, false), "a key");
  assert.ok(!counts({ isTrusted: true, detail: 0 }, true), "a key that is held");
  assert.ok(counts({ isTrusted: true, detail: 1 }, true), "a tap after a key was held");
  assert.ok(!counts({ isTrusted: false, detail: 1 }, false), "a script");
});

test("a stream is cut into events wherever its parts end", () => {
  const text = 'retry: 1000\n\nid: 1\nevent: receipt\ndata: {"a":1}\n\n: quiet\n\nid: 2\nevent: answered\ndata: {"a":2}\n\n';
  for (let cut = 0; cut <= text.length; cut += 1) {
    const first = parse(text.slice(0, cut));
    const second = parse(first.rest + text.slice(cut));
    assert.deepEqual([...first.events, ...second.events], [{ a: 1 }, { a: 2 }]);
    assert.equal(second.rest, "");
  }
});
