"""The official Python client lists and calls every tool, through two real proxies and a real coordinator."""

import asyncio
import json
import os
from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

DEADLINE = 60
called = set()


@asynccontextmanager
async def session(project):
    """A session whose project folder has that name."""
    folder = os.path.join(os.environ["C3PO_WORK"], project)
    os.makedirs(folder, exist_ok=True)
    environment = {name: os.environ[name] for name in ("PATH", "C3PO_COORDINATOR_URL")}
    environment |= {"HOME": os.environ["C3PO_WORK"], "XDG_RUNTIME_DIR": os.environ["C3PO_WORK"]}
    proxy = StdioServerParameters(
        command=os.environ["C3PO_PROGRAM"], args=["proxy"], cwd=folder, env=environment
    )
    async with stdio_client(proxy) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        yield client


async def call(client, tool, refused=None, **arguments):
    """Calls a tool and returns its object; `refused` is the code that is expected instead of a reply."""
    called.add(tool)
    result = await client.call_tool(tool, arguments)
    text = json.loads(result.content[0].text)
    assert result.is_error == bool(refused), f"{tool}: {text}"
    if refused:
        assert text["code"] == refused, f"{tool}: {text}"
    else:
        assert result.structured_content == text, f"{tool}: the two forms of the result differ"
    return text


async def every_tool(home, mesh):
    assert (await call(home, "ping"))["agent_id"] == "homeassistant"
    await call(mesh, "register_agent", capabilities=["mqtt"], role="radio")
    await call(mesh, "set_status", status="busy", current_task="listening")
    agents = await call(home, "list_agents")
    assert {agent["id"] for agent in agents["agents"]} >= {"homeassistant", "meshtastic"}, agents
    details = await call(home, "get_agent_status", agent_id="meshtastic")
    assert (details["state"], details["current_task"]) == ("busy", "listening"), details

    sent = await call(home, "send_message", target="meshtastic", message="What topics are there?")
    inbox = await call(mesh, "get_messages")
    assert [message["id"] for message in inbox["messages"]] == [sent["id"]], inbox
    await call(mesh, "reply", message_id=sent["id"], response="zigbee2mqtt/#")
    answer = await call(home, "wait_for_message", message_id=sent["id"], timeout=10)
    assert (answer["from_agent"], answer["response"]) == ("meshtastic", "zigbee2mqtt/#"), answer
    thread = await call(home, "get_thread", message_id=sent["id"])
    assert len(thread["messages"]) == 2, thread
    status = await call(home, "message_status", message_id=sent["id"])
    assert status["stage"] == "answered", status

    copies = await call(mesh, "broadcast", message="Back at ten")
    assert copies["recipients"] == ["homeassistant"], copies
    news = await call(home, "wait_for_message", timeout=10)
    assert news["message"] == "Back at ten", news
    assert (await call(home, "ack_messages", message_ids=[news["id"]]))["acked"] == [news["id"]]
    await call(home, "send_message", refused="AGENT_NOT_FOUND", target="nobody", message="?")


async def main():
    async with session("homeassistant") as home, session("meshtastic") as mesh:
        listed = {tool.name for tool in (await home.list_tools()).tools}
        await every_tool(home, mesh)
        assert listed == called, f"listed and not called, or the other way round: {listed ^ called}"
        print(f"the Python client listed and called {len(listed)} tools")


asyncio.run(asyncio.wait_for(main(), DEADLINE))
