"""ToolCalls: calls in the three forms, and wrong calls, which are invalid turns and never exceptions."""

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.tools import BoxEnv
from tsr_gym import ConfigError
from tsr_gym.testing import check_snapshot
from tsr_gym.tools import mismatch, write_call
from tsr_gym.wrappers import ToolCalls
from tsr_gym.wrappers.tool_calls import FAMILIES, Call, action_of, read_call


def played(text, family="hermes"):
    env = ToolCalls(BoxEnv(), family=family)
    env.reset(seed=0)
    return env.step(text)


def block(call):
    return f"<tool_call>{call}</tool_call>"


RIGHT = [
    ("hermes", block('{"name": "put", "arguments": {"thing": "pen", "count": 2}}')),
    ("hermes", f"<think>{block('{}')}</think> I do. " + block('{"name":"put","arguments":{"thing":"pen","count":2}}')),
    ("llama", '{"name": "put", "parameters": {"thing": "pen", "count": 2}}<|eom_id|>'),
    ("llama", '<|python_tag|>{"type": "function", "name": "put", "parameters": {"thing": "pen", "count": 2}}'),
    ("mistral", '[TOOL_CALLS] [{"name": "put", "arguments": {"thing": "pen", "count": 2}, "id": "a"}]</s>'),
    ("mistral", '[{"name": "put", "arguments": {"thing": "pen", "count": 2}}]'),
    ("mistral", '[TOOL_CALLS]put[ARGS]{"thing": "pen", "count": 2}'),
    ("mistral", 'put{"thing": "pen", "count": 2}'),
]


@pytest.mark.parametrize(("family", "text"), RIGHT)
def test_a_call_becomes_an_action(family, text):
    observation, reward, _, _, info = played(text, family)
    assert (info["executed"], info["action_is_valid"], reward) == (('put(thing="pen", count=2)',), True, 0.0)
    assert observation.endswith("pen")


WRONG = [
    ("hermes", "words alone", "wanted one tool call, got none"),
    ("hermes", block('{"name": "put", "arguments": {"thing": "pen"}}') * 2, "wanted one tool call, got 2"),
    ("hermes", block('{"name": "put", "arguments": {"thing": "pen"}'), "no JSON"),
    ("hermes", '<tool_call>{"name": "close", "arguments": {}}', "is not closed"),
    ("hermes", block('["put"]'), "an object with a name"),
    ("hermes", block('{"name": "put"}'), "an object with a name"),
    ("hermes", block('{"name": "fly", "arguments": {}}'), "there is no tool 'fly'"),
    ("hermes", block('{"name": "put", "arguments": "pen"}'), "wanted arguments as object"),
    ("hermes", block('{"name": "put", "arguments": {}}'), "thing is missing"),
    ("hermes", block('{"name": "put", "arguments": {"thing": "sea"}}'), "wanted thing as one of"),
    ("hermes", block('{"name": "put", "arguments": {"thing": "pen", "count": true}}'), "wanted count as integer"),
    ("hermes", block('{"name": "put", "arguments": {"thing": "pen", "count": NaN}}'), "no JSON"),
    ("hermes", block('{"name": "put", "arguments": {"thing": "pen", "a": 1}}'), "no argument 'a'"),
    ("hermes", block("[" * 100_000), "no JSON"),
    ("llama", "I will put the pen.", "got none"),
    ("llama", '{"name": "close", "parameters": {}}; {"name": "close", "parameters": {}}', "got 2"),
    ("llama", '{"name": "close", "parameters": {}} and more', "got none"),
    ("mistral", '[TOOL_CALLS] [{"name": "close"}', "no JSON"),
    ("mistral", "words [TOOL_CALLS]", "got none"),
]


@pytest.mark.parametrize(("family", "text", "reason"), WRONG)
def test_a_wrong_call_is_an_invalid_turn_with_a_price(family, text, reason):
    observation, reward, terminated, truncated, info = played(text, family)
    assert reason in info["invalid_reason"]
    assert (info["action_is_valid"], info["action"], info["executed"], info["turns_left"]) == (False, "", (), 5)
    assert (reward, terminated, truncated, observation) == (-0.1, False, False, 'The "box" holds:\nnothing')


@given(st.sampled_from(FAMILIES), st.text(st.sampled_from('{}[]":,;a1 \n<tool_call>/<|python_tag|>[TOOL_CALLS]\ud800')))
def test_no_text_raises(family, text):
    assert played(text, family)[4]["invalid_reason"]
    assert read_call(text, family).reason or True


@pytest.mark.parametrize("value", ["\ud800", "x" * 100_001, "a || b"])
def test_arguments_that_cannot_be_one_action_are_wrong(value):
    env = BoxEnv()
    env.separator = "||"
    env.tools = (env.tools[1],)
    action, reason = action_of(env, Call("close", {"text": value}))
    assert action == ""
    assert reason


def test_nested_schemas_are_checked():
    schema = {"type": "array", "items": {"type": ["string", "null"]}}
    assert mismatch(schema, ["a", None]) == ""
    assert mismatch(schema, ["a", 2], "names") == "wanted items of names as string or null, got 2"
    assert mismatch({"type": "number"}, 2) == mismatch({"type": "boolean"}, False) == mismatch({}, True) == ""
    assert write_call("say", {"text": 'a "b"\n', "to": None}) == 'say(text="a \\"b\\"\\n", to=null)'


def test_snapshots_go_through_the_wrapper():
    check_snapshot(ToolCalls(gym.make("tests/Box-v0")))


def test_other_families_are_refused():
    with pytest.raises(ConfigError, match="wanted a family of tool calls"):
        ToolCalls(BoxEnv(), family="morse")
