"""ToolCalls: from the tool call in a model's text to an action, and the penalty for a wrong call."""

import json
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.ranges import check_range
from tsr_gym.text_env import MAX_TEXT, TextEnv
from tsr_gym.tools import mismatch

Family = Literal["hermes", "llama", "mistral"]
FAMILIES: tuple[Family, ...] = get_args(Family)

_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
# Mistral's later form, a name and an object, with the marker between them or without.
_NAMED = re.compile(r"([\w.-]+)(?:\[ARGS\])?\s*(\{.*)", re.DOTALL)
_ENDS = re.compile(r"(?:<\|eot_id\|>|<\|eom_id\|>|</s>|\s)*")


class Call(NamedTuple):
    """A call of a tool; `reason` states why a text holds none, and is "" otherwise."""

    name: str
    arguments: Any
    reason: str = ""


def family_of(template: str) -> Family:
    """Return the form in which models with a chat template write calls.

    Raises:
        ConfigError: The template shows none of the forms that can be read.

    >>> family_of("... within <tool_call></tool_call> XML tags ...")
    'hermes'
    """
    # Some models write XML or other markup into the tags of Hermes.
    if "<tool_call>" in template and "<function=" not in template and "<arg_key>" not in template:
        return "hermes"
    if "[TOOL_CALLS]" in template:
        return "mistral"
    if "<|python_tag|>" in template or ("<|eot_id|>" in template and "tools" in template):
        return "llama"
    raise ConfigError(
        f"the chat template shows no form of tool calls that can be read: wanted one of {list(FAMILIES)}; name it with "
        "--tool-calls, or use another prompt"
    )


def read_call(text: str, family: Family) -> Call:
    """Return the call in a model's text; one with a reason where there is not exactly one call.

    Args:
        text: The answer, with or without its special tokens. What stands before the end of a thinking part is ignored.
        family: The form of the call.

    >>> read_call('<tool_call>{"name": "look", "arguments": {"at": "box"}}</tool_call>', "hermes")
    Call(name='look', arguments={'at': 'box'}, reason='')
    >>> read_call('{"name": "look", "parameters": {}}', "llama").name
    'look'
    >>> read_call('[TOOL_CALLS] [{"name": "look", "arguments": {}}]', "mistral").name
    'look'
    >>> read_call("I look.", "hermes").reason
    'wanted one tool call, got none'
    """
    try:
        calls = _READERS[family](text.rpartition("</think>")[2])
    except (ValueError, RecursionError) as error:
        return Call("", None, f"the tool call is no JSON: {error!s:.80}")
    if len(calls) != 1:
        return Call("", None, f"wanted one tool call, got {len(calls) or 'none'}")
    (call,) = calls
    key = "parameters" if family == "llama" and isinstance(call, dict) and "parameters" in call else "arguments"
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or key not in call:
        return Call("", None, "wanted a tool call as an object with a name and arguments")
    return Call(call["name"], call[key])


def write_hermes(name: str, arguments: str) -> str:
    r"""Return a call in the form of Hermes; the arguments are a text of JSON.

    >>> write_hermes("look", '{"at": "box"}')
    '<tool_call>\n{"name": "look", "arguments": {"at": "box"}}\n</tool_call>'
    """
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'


def action_of(base: TextEnv[Any], call: Call) -> tuple[str, str]:
    """Return the action of a call in a world, and ""; or "" and the reason why the call is wrong.

    Args:
        base: The world.
        call: What `read_call` returned, or any name with arguments.
    """
    if call.reason:
        return "", call.reason
    tool = next((tool for tool in base.tools if tool.name == call.name), None)
    if tool is None:
        return "", f"there is no tool {call.name[:80]!r}: wanted one of {[tool.name for tool in base.tools]}"
    if not isinstance(call.arguments, dict):
        return "", f"wanted arguments as object, got {call.arguments!r:.80}"
    if reason := mismatch(tool.parameters, call.arguments):
        return "", reason
    action = base.tool_action(tool.name, call.arguments)
    # An argument must neither become two actions nor be a text that cannot be stored.
    if base.separator and base.separator in action:
        return "", f"an argument holds {base.separator!r}, which separates actions"
    if len(action) > MAX_TEXT or not _is_unicode(action):
        return "", f"wanted a call of at most {MAX_TEXT} characters of Unicode"
    return action, ""


class ToolCalls(gym.Wrapper[str, str, str, str], gym.utils.RecordConstructorArgs):
    """Take model text with one call of a tool as actions.

    Text without exactly one call of a tool that the world has, with arguments that fit its schema, becomes the empty
    action, which costs a turn. The penalty is subtracted from such a turn's reward, and where the world reports that
    the action had no meaning. `info` gains ``action`` and ``format_penalty``, and ``invalid_reason`` states the
    mistake, as with `tsr_gym.wrappers.AnswerFormat`.

    Args:
        env: A `TextEnv` with tools.
        penalty: Price of a wrong call, which is subtracted.
        family: The form of calls: that of Hermes and Qwen, of Llama 3, or of Mistral.

    Raises:
        ConfigError: The environment has no tools, or there is no such family.
    """

    def __init__(self, env: gym.Env[str, str], penalty: float = 0.1, family: Family = "hermes") -> None:
        check_range(least=0, penalty=penalty)
        if family not in FAMILIES:
            raise ConfigError(f"wanted a family of tool calls of {list(FAMILIES)}, got {family!r}")
        gym.utils.RecordConstructorArgs.__init__(self, penalty=penalty, family=family)
        super().__init__(env)
        base = env.unwrapped
        if not isinstance(base, TextEnv) or not base.tools:
            raise ConfigError(f"{type(base).__name__} has no tools that a model can call: use another prompt")
        self.penalty = penalty
        self.family: Family = family
        self._base = base

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take the turn that a model's text asks for."""
        taken, reason = action_of(self._base, read_call(action, self.family))
        observation, reward, terminated, truncated, info = self.env.step(taken)
        is_valid = not reason and info.get("action_is_valid", True)
        penalty = 0.0 if is_valid else self.penalty
        if reason:
            info["invalid_reason"] = reason
        info["action"] = taken
        info["action_is_valid"] = is_valid
        info["format_penalty"] = penalty
        return observation, float(reward) - penalty, terminated, truncated, info

    def wrapper_state(self) -> None:
        """Return None: the wrapper holds nothing of the episode."""

    def set_wrapper_state(self, state: None) -> None:
        """Do nothing: see `wrapper_state`."""


def _hermes(text: str) -> list[Any]:
    if text.count("<tool_call>") != text.count("</tool_call>"):
        raise ValueError("a tag <tool_call> is not closed")
    return [_loads(block) for block in _BLOCK.findall(text)]


def _llama(text: str) -> list[Any]:
    body = text.strip().removeprefix("<|python_tag|>").strip()
    return _objects(body) if body.startswith("{") else []


def _mistral(text: str) -> list[Any]:
    # The marker is a special token, so a text may lack it.
    before, marker, after = text.partition("[TOOL_CALLS]")
    body = (after if marker else before).strip()
    if body.startswith("["):
        calls, end = _DECODER.raw_decode(body)
        return list(calls) if _ENDS.fullmatch(body, end) else []
    named = _NAMED.match(body)
    return [] if named is None else [{"name": named[1], "arguments": value} for value in _objects(named[2])]


def _objects(body: str) -> list[Any]:
    """Return the objects of JSON that a text begins with, separated by semicolons; none where other text follows."""
    objects, end = [], -1
    while end < 0 or body[end : end + 1] == ";":
        value, end = _DECODER.raw_decode(body, end + 1 + len(body[end + 1 :]) - len(body[end + 1 :].lstrip()))
        objects.append(value)
    return objects if _ENDS.fullmatch(body, end) else []


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
_READERS: dict[Family, Callable[[str], list[Any]]] = {"hermes": _hermes, "llama": _llama, "mistral": _mistral}


def _loads(text: str) -> Any:
    return _DECODER.decode(text.strip())


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
