// The MCP inspector lists and calls every tool: for each call a proxy of its own, which comes, speaks and goes.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

const { C3PO_PROGRAM, C3PO_COORDINATOR_URL, C3PO_WORK, PATH } = process.env;
const DEADLINE_MS = 30_000;
const called = new Set();

function inspect(project, ...rest) {
  const cwd = join(C3PO_WORK, project);
  mkdirSync(cwd, { recursive: true });
  const env = { PATH, HOME: C3PO_WORK, XDG_RUNTIME_DIR: C3PO_WORK };
  const server = ["-e", `C3PO_COORDINATOR_URL=${C3PO_COORDINATOR_URL}`, "--cwd", cwd, C3PO_PROGRAM, "proxy"];
  const output = execFileSync("mcp-inspector", ["--cli", ...server, ...rest], { cwd, env, timeout: DEADLINE_MS });
  return JSON.parse(output);
}

function call(project, tool, args = {}) {
  called.add(tool);
  const given = Object.entries(args).flatMap(([name, value]) => {
    return ["--tool-arg", `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`];
  });
  const result = inspect(project, "--method", "tools/call", "--tool-name", tool, ...given);
  assert.ok(!result.isError, `${tool}: ${result.content?.[0]?.text}`);
  return JSON.parse(result.content[0].text);
}

const listed = inspect("homeassistant", "--method", "tools/list").tools.map((tool) => tool.name);
const home = (tool, args) => call("homeassistant", tool, args);
const mesh = (tool, args) => call("meshtastic", tool, args);

assert.equal(home("ping").agent_id, "homeassistant");
mesh("register_agent", { capabilities: ["mqtt"] });
mesh("set_status", { status: "busy", current_task: "listening" });
const ids = home("list_agents").agents.map((agent) => agent.id);
assert.ok(ids.includes("meshtastic"), `${ids}`);
assert.equal(home("get_agent_status", { agent_id: "meshtastic" }).id, "meshtastic");

const sent = home("send_message", { target: "meshtastic", message: "What topics are there?" });
assert.deepEqual(mesh("get_messages").messages.map((message) => message.id), [sent.id]);
assert.equal(mesh("reply", { message_id: sent.id, response: "zigbee2mqtt/#" }).to_agent, "homeassistant");
const answer = home("wait_for_message", { message_id: sent.id, timeout: 10 });
assert.deepEqual([answer.from_agent, answer.response], ["meshtastic", "zigbee2mqtt/#"]);
assert.equal(home("get_thread", { message_id: sent.id }).messages.length, 2);
assert.equal(home("message_status", { message_id: sent.id }).stage, "answered");

const copies = mesh("broadcast", { message: "Back at ten" });
assert.deepEqual(copies.recipients, ["homeassistant"]);
const copy = copies.receipts[0].message_id;
assert.deepEqual(home("ack_messages", { message_ids: [copy] }).acked, [copy]);

assert.deepEqual([...called].sort(), [...listed].sort(), "listed and called differ");
console.log(`the inspector listed and called ${listed.length} tools`);
