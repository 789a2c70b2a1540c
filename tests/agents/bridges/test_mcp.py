"""Worlds behind MCP's calls, without the package mcp; `with_mcp.py` has the real client."""

import gymnasium as gym
import pytest

from tests.agents.tools import PUT, BoxEnv
from tsr_gym import ConfigError, MissingExtra, Tool
from tsr_gym.agents import cli
from tsr_gym.agents.bridges import mcp


def desk(**settings):
    return mcp.Desk(gym.make("tests/Box-v0", **settings))


def test_a_wrong_call_costs_a_turn_and_a_wrong_call_of_the_server_does_not():
    box = desk()
    box.call("reset", {"seed": 1})
    seen, reason = box.call("put", {"thing": "sea"})
    assert (reason, seen.info["turns_left"]) == ("wanted thing as one of ['pen', 'cup'], got 'sea'", 5)
    seen, reason = box.call("snapshot", {})
    assert (reason, seen.info["turns_left"]) == ("name is missing in the arguments", 5)


def test_a_state_returns_by_its_name_as_often_as_wanted():
    box = desk()
    box.call("snapshot", {"name": "start"})
    for thing in ("pen", "cup"):
        assert box.call("put", {"thing": thing})[0].text.endswith(f"\n{thing}")
        assert box.call("restore", {"name": "start"})[0].text.endswith("\nnothing")


def test_snapshots_have_a_limit(monkeypatch):
    monkeypatch.setattr(mcp, "MAX_SNAPSHOTS", 1)
    box = desk()
    assert [box.call("snapshot", {"name": name})[1] for name in ("a", "a", "b")] == [
        "",
        "",
        "wanted at most 1 snapshots: use a name again",
    ]


def test_what_cannot_be_served_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="wanted an environment of text"):
        mcp.Desk(gym.make("CartPole-v1"))
    env = BoxEnv()
    env.tools = (Tool("reset", "Something else.", PUT.parameters),)
    with pytest.raises(ConfigError, match="a tool of the world is named as one of"):
        mcp.Desk(env)
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"pip install 'tsr-gym\[mcp\]'"):
        mcp.mcp_server("sokoban")


def test_the_command_wants_a_protocol(capsys):
    assert cli.main(["serve", "sokoban"]) == 2
    assert "wanted --mcp" in capsys.readouterr().err
