"""Tools: the functions of a world that a language model may call, and the check of a call's arguments."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a language model may call.

    Attributes:
        name: Its name in calls.
        description: For the model.
        parameters: Its arguments as a JSON schema of type ``object``.

    >>> Tool("look", "Look at a place.", {"type": "object", "properties": {}}).schema["function"]["name"]
    'look'
    """

    name: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def schema(self) -> dict[str, Any]:
        """The form in which chat templates and servers with OpenAI's API take a tool."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the generic text of a call, with its values in JSON.

    >>> write_call("move", {"to": "north", "steps": 2})
    'move(to="north", steps=2)'
    """
    values = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items()]
    return f"{name}({', '.join(values)})"


def mismatch(schema: Mapping[str, Any], value: object, what: str = "arguments") -> str:
    """Return why a value does not fit a JSON schema, "" if it does.

    ``type``, ``enum``, ``minimum``, ``properties``, ``required``, ``additionalProperties: false`` and ``items`` are
    checked; the world checks the rest, because a wrong argument is the agent's mistake.

    Args:
        schema: The schema.
        value: A value of JSON's types.
        what: Name of the value in the reason.

    >>> mismatch({"type": "object", "properties": {"steps": {"type": "integer"}}}, {"steps": "two"})
    "wanted steps as integer, got 'two'"
    """
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if names and not any(_is(value, name) for name in names):
        return f"wanted {what} as {' or '.join(names)}, got {value!r:.80}"
    if "enum" in schema and not any(type(value) is type(other) and value == other for other in schema["enum"]):
        return f"wanted {what} as one of {list(schema['enum'])}, got {value!r:.80}"
    if isinstance(value, int | float) and value < schema.get("minimum", value):
        return f"wanted {what} >= {schema['minimum']}, got {value!r:.80}"
    if isinstance(value, dict):
        return _misfit(schema, value, what)
    if isinstance(value, list) and "items" in schema:
        return next(filter(None, (mismatch(schema["items"], item, f"items of {what}") for item in value)), "")
    return ""


def _misfit(schema: Mapping[str, Any], value: Mapping[str, Any], what: str) -> str:
    properties = schema.get("properties", {})
    if missing := [name for name in schema.get("required", ()) if name not in value]:
        return f"{missing[0]} is missing in the {what}"
    if schema.get("additionalProperties") is False and (unknown := [name for name in value if name not in properties]):
        return f"there is no argument {unknown[0]!r:.80}: wanted {', '.join(properties) or 'none'}"
    reasons = (mismatch(properties[name], item, name) for name, item in value.items() if name in properties)
    return next(filter(None, reasons), "")


def _is(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES.get(name, (object,)))
