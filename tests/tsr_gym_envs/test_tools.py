"""Worlds of tools: the calls of a language model do what the same actions in words do."""

import gymnasium as gym
import pytest

import tsr_gym

pytest.importorskip("just_bash", reason="needs the extra shell")
DATABASE = {"domain": "shop", "depth": 2}


@pytest.mark.parametrize(
    ("world", "settings", "name", "arguments"),
    [
        ("tsr/Shell-v0", {}, "bash", {"command": "echo it\\'s > new && cat new"}),
        ("tsr/Database-v0", DATABASE, "find_customer", {"name": "ann"}),
        ("tsr/Database-v0", DATABASE, "refuse", {"rule": 1}),
        ("tsr/Database-v0", {**DATABASE, "sql": True}, "query", {"sql": "SELECT count(*) FROM orders"}),
    ],
)
def test_a_call_is_an_action_of_the_world(world, settings, name, arguments):
    env = gym.make(world, **settings).unwrapped
    tool = next(tool for tool in env.tools if tool.name == name)
    assert isinstance(tool, tsr_gym.Tool)
    assert set(tool.parameters["required"]) == set(arguments)
    env.reset(seed=3)
    info = env.step(env.tool_action(name, arguments))[4]
    assert info["action_is_valid"], info["invalid_reason"]


def test_the_tools_of_several_domains_have_each_name_once():
    tools = gym.make("tsr/Database-v0").unwrapped.tools
    names = [tool.name for tool in tools]
    assert len(names) == len(set(names)) > 20
    (refuse,) = (tool for tool in tools if tool.name == "refuse")
    alone = [gym.make("tsr/Database-v0", domain=domain).unwrapped.tools for domain in ("shop", "flights", "library")]
    rules = [
        tool.parameters["properties"]["rule"]["enum"] for tools in alone for tool in tools if tool.name == "refuse"
    ]
    assert all(set(numbers) <= set(refuse.parameters["properties"]["rule"]["enum"]) for numbers in rules)
