"""Worlds behind an MCP server, with the real client. Not collected; `make test-mcp` runs it."""

import asyncio
import sys

from mcp import Client, StdioServerParameters

from tests.agents.tools import BoxEnv
from tsr_gym.agents.bridges.mcp import mcp_server


def run(play, server="tests.agents.tools:tests/Box-v0"):
    """Return the result of a function of a client, which is connected in this process or over stdio."""

    async def connected():
        async with Client(mcp_server(server) if isinstance(server, str) else server) as client:
            return await play(client)

    return asyncio.run(connected())


def text(result):
    return result.content[0].text


async def listed(client):
    return (await client.list_tools()).tools


def test_the_tools_of_the_world_and_the_servers_own_are_listed():
    tools = {tool.name: tool for tool in run(listed)}
    assert list(tools) == ["put", "close", "reset", "observe", "snapshot", "restore"]
    assert tools["put"].input_schema == dict(BoxEnv.tools[0].parameters)


async def branch(client):
    await client.call_tool("reset", {"seed": 3})
    await client.call_tool("put", {"thing": "cup"})
    await client.call_tool("snapshot", {"name": "cup"})
    await client.call_tool("put", {"thing": "pen"})
    won = await client.call_tool("close", {})
    after = await client.call_tool("put", {"thing": "pen"})
    back = await client.call_tool("restore", {"name": "cup"})
    lost = await client.call_tool("close", {})
    return won, after, back, lost


def check_branch(won, after, back, lost):
    assert (won.structured_content["reward"], won.structured_content["terminated"], won.is_error) == (1.0, True, False)
    assert won.structured_content["info"]["success"] is True
    assert after.is_error
    assert text(after).startswith("Error: the episode has ended")
    assert (text(back), back.is_error) == ('The "box" holds:\ncup', False)
    assert (lost.structured_content["reward"], text(lost)) == (0.0, 'The "box" holds:\ncup')


def test_a_client_returns_to_a_snapshot_by_its_name():
    check_branch(*run(branch))


def test_the_command_serves_over_standard_input_and_output():
    command = ["-m", "tsr_gym", "serve", "tests.agents.tools:tests/Box-v0", "--mcp"]
    check_branch(*run(branch, StdioServerParameters(command=sys.executable, args=command)))


async def mistakes(client):
    calls = [
        ("put", {"thing": "sea"}),
        ("put", {}),
        ("restore", {"name": "nothing"}),
        ("restore", {}),
        ("reset", {"seed": "x"}),
        ("reset", {"seed": -1}),
        ("fly", {}),
    ]
    results = [await client.call_tool(name, arguments) for name, arguments in calls]
    return [text(result).splitlines()[0] for result in results], [result.is_error for result in results]


def test_mistakes_are_results_and_no_exceptions():
    lines, errors = run(mistakes)
    assert errors == [True] * 7
    assert lines == [
        "Error: wanted thing as one of ['pen', 'cup'], got 'sea'",
        "Error: thing is missing in the arguments",
        "Error: there is no snapshot 'nothing': wanted one of []",
        "Error: name is missing in the arguments",
        "Error: wanted seed as integer, got 'x'",
        "Error: wanted seed >= 0, got -1",
        "Error: there is no tool 'fly': wanted one of ['put', 'close']",
    ]


async def act(client):
    await client.call_tool("reset", {"seed": 1})
    moved = await client.call_tool("act", {"action": "Up"})
    shown = await client.call_tool("observe", {})
    return moved, shown, await client.call_tool("act", {"action": 3})


def test_a_world_without_tools_has_one_for_its_actions():
    moved, shown, wrong = run(act, "sokoban")
    assert moved.structured_content["info"]["executed"] == ["Up"]
    assert text(shown) == text(moved)
    assert wrong.is_error
