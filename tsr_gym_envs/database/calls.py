"""Calls as an agent writes them: ``cancel_order(order="O17")``, or in words, ``cancel order o17``."""

import re
from functools import lru_cache
from typing import NamedTuple

from tsr_gym_envs.database.domains import Domain, Param, Tool, Value, tools_of
from tsr_gym_envs.reasons import shown

# Longer texts are no calls.
MAX_CALL = 1000
_CALL = re.compile(r"\s*([A-Za-z_]{1,40})\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r"\s*(?:([A-Za-z_]{1,40})\s*=\s*)?(\"[^\"]*\"|'[^']*'|[^\s,\"'=()]+)\s*(?:,|$)")
_ID = re.compile(r"[A-Z][A-Z0-9-]{0,30}")
_NAME = re.compile(r"[A-Za-z]{1,20}( [A-Za-z]{1,20})?")
# The tool of queries in SQL, which a setting adds to those of a domain.
QUERY = Tool("query", "Read the tables by a query in SQL.", "show", (Param("sql"),))


class Call(NamedTuple):
    """A call; `reason` states why a text is none, and is "" otherwise."""

    tool: Tool
    args: tuple[tuple[str, Value], ...] = ()
    reason: str = ""


def _no_call(reason: str) -> Call:
    return Call(QUERY, (), reason)


def write_call(tool: Tool, args: tuple[tuple[str, Value], ...], *, compact: bool) -> str:
    """Return the text of a call.

    >>> from tsr_gym_envs.database.domains import SHOP
    >>> write_call(SHOP.writers[0], (("order", "O17"),), compact=False)
    'cancel_order(order="O17")'
    """
    if compact:
        return " ".join((*tool.words, *(str(value).lower() for _, value in args)))
    written = (f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in args)
    return f"{tool.name}({', '.join(written)})"


@lru_cache(maxsize=4096)
def read_call(text: str, domain: Domain, sql: bool = False) -> Call:
    """Return the call that a text makes.

    Args:
        text: The text.
        domain: The domain whose tools may be called.
        sql: Whether queries in SQL are allowed.

    >>> from tsr_gym_envs.database.domains import SHOP
    >>> read_call("refund order o3", SHOP).args
    (('order', 'O3'),)
    >>> read_call('cancel_order(order="O17", all=1)', SHOP).reason
    "cancel_order has no argument 'all': it takes order"
    """
    if len(text) > MAX_CALL:
        return _no_call(f"wanted a call of at most {MAX_CALL} characters, got {len(text)}")
    match = _CALL.fullmatch(text)
    name = match[1].lower() if match else ""
    if name == "query" and sql and match:
        return _query(match[2])
    if match:
        tool = tools_of(domain).get(name)
        return _no_call(f"there is no tool {name!r}") if tool is None else _bound(tool, match[2])
    return _in_words(text, domain)


def _query(written: str) -> Call:
    sql = written.strip().removeprefix("sql").lstrip().removeprefix("=").strip()
    if len(sql) < 2 or sql[0] != sql[-1] or sql[0] not in "\"'":
        return _no_call('wanted query(sql="SELECT ...")')
    sql = sql[1:-1]
    if "\0" in sql or not sql.isascii():
        return _no_call("wanted a query of ASCII characters without NUL")
    return Call(QUERY, (("sql", sql),))


def _bound(tool: Tool, written: str) -> Call:
    """Return the call of a tool with arguments as they are written between the brackets."""
    names = [param.name for param in tool.params]
    values: dict[str, str] = {}
    place = 0
    while written[place:].strip():
        match = _ARGUMENT.match(written, place)
        if match is None:
            return _no_call(f"the arguments {shown(written)} of {tool.name} cannot be read")
        place, name = match.end(), match[1] or (names[len(values)] if len(values) < len(names) else "")
        if name not in names or name in values:
            return _no_call(f"{tool.name} has no argument {name!r}: it takes {', '.join(names) or 'none'}")
        values[name] = match[2].strip("\"'")
    if missing := [name for name in names if name not in values]:
        return _no_call(f"{tool.name} needs {missing[0]}")
    return _typed(tool, values)


def _in_words(text: str, domain: Domain) -> Call:
    words = tuple(text.lower().split())
    for tool in tools_of(domain).values():
        rest = words[len(tool.words) :]
        if words[: len(tool.words)] != tool.words:
            continue
        if len(tool.params) == 1 and rest:
            rest = (" ".join(rest),)
        if len(rest) != len(tool.params):
            wanted = ", ".join(param.name for param in tool.params) or "no argument"
            return _no_call(f"{tool.name} takes {wanted}, got {len(rest)} words")
        return _typed(tool, dict(zip((param.name for param in tool.params), rest, strict=True)))
    return _no_call(f"{shown(text)} is no call: write tool(name=value)")


def _typed(tool: Tool, values: dict[str, str]) -> Call:
    args: list[tuple[str, Value]] = []
    for param in tool.params:
        value = _value(param, values[param.name])
        if value is None:
            wanted = "an id" if param.table else f"one of {list(param.values)}" if param.values else "a name"
            return _no_call(f"wanted {param.name} as {wanted}, got {shown(values[param.name])}")
        args.append((param.name, value))
    return Call(tool, tuple(args))


def _value(param: Param, text: str) -> Value | None:
    if param.table:
        return text.upper() if _ID.fullmatch(text.upper()) else None
    if param.values:
        return next((value for value in param.values if str(value) == text.lower()), None)
    return text.lower() if _NAME.fullmatch(text) else None
