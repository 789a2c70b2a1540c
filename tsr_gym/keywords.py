"""Calls written as text, as a command line or a configuration file has them: the one way from a name to a callable."""

import ast
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from tsr_gym.errors import ConfigError
from tsr_gym.optional import load


class Call(NamedTuple):
    """A call as it is written.

    Attributes:
        name: Bare, or ``package.module:name``.
        keywords: Its numbers and other literals.
    """

    name: str
    keywords: dict[str, Any]

    def __str__(self) -> str:
        written = ", ".join(f"{name}={value!r}" for name, value in self.keywords.items())
        return f"{self.name}({written})" if written else self.name


class Choice(str):
    """A setting that names a callable: its text, and the callable with its numbers bound.

    It is equal to its text and is written to files as its text, so a configuration reads and compares as the user wrote
    it. The callable was looked up and checked once, when the choice was made.

    Attributes:
        bound: The callable.
    """

    bound: "partial[Any]"

    def __new__(cls, text: str, bound: "partial[Any]") -> "Choice":
        """Return the text with the callable that it names."""
        choice = super().__new__(cls, text)
        choice.bound = bound
        return choice

    @classmethod
    def unbound(cls, text: str) -> "Choice":
        """Return a choice whose callable was not looked up, for showing it; calling it raises ConfigError."""
        return cls(text, partial(_refuse, text))

    def __getnewargs__(self) -> "tuple[str, partial[Any]]":  # type: ignore[override]
        return str(self), self.bound

    def __copy__(self) -> "Choice":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Choice":
        # A choice never changes, and a bound callable may hold what cannot be copied.
        return self

    @property
    def name(self) -> str:
        """The name without its numbers, such as ``"beam"`` of ``"beam(width=2)"``."""
        return self.partition("(")[0].strip()


def _refuse(text: str, *_: Any, **__: Any) -> Any:
    raise ConfigError(f"{text!r} was read to be shown only, and cannot be called")


def bind(text: str, choose_by: "Callable[[str], partial[Any]]") -> Choice:
    """Return a text with the callable that it names; a choice that is bound already as it is.

    Args:
        text: A call, see `parse_call`.
        choose_by: From the text to the callable.

    Raises:
        ConfigError: See `choose`.
    """
    return text if isinstance(text, Choice) else Choice(text, choose_by(text))


def with_defaults(bound: "partial[Any]", **offered: Any) -> "partial[Any]":
    """Return a bound callable with more keywords, where it has such parameters and does not set them itself."""
    parameters = inspect.signature(bound.func).parameters
    added = {name: value for name, value in offered.items() if name in parameters and name not in bound.keywords}
    return partial(bound.func, **added | bound.keywords)


def parse_call(text: str, *, what: str = "call") -> Call:
    """Return the call that a text writes.

    Args:
        text: A name, or a name with literal keywords.
        what: What is called, for the message.

    Raises:
        ConfigError: The text is not of this form.

    >>> parse_call("beam(width=2)")
    Call(name='beam', keywords={'width': 2})
    """
    name, bracket, rest = text.partition("(")
    try:
        call = ast.parse(f"f({rest}" if bracket else "f()", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("wanted keywords only")
        return Call(name.strip(), {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords})
    except (SyntaxError, ValueError) as error:
        raise ConfigError(
            f"wanted the {what} as name, name(key=value) or package.module:name(...), got {text!r} ({error})"
        ) from error


def choose(
    text: str,
    *,
    home: str,
    what: str,
    takes: int = 1,
    offered: Mapping[str, Any] | None = None,
    among: Callable[[Any], bool] | None = None,
    trial: Callable[[Callable[..., Any]], object] | None = None,
) -> "partial[Any]":
    """Return the callable that a text names, its keywords bound and its signature checked.

    Args:
        text: ``name``, ``name(key=value)`` or ``package.module:name(...)``.
        home: Module of bare names.
        what: What is chosen, such as ``"strategy"``, for messages.
        takes: How many positional arguments it will be called with.
        offered: Keywords that it gets where it has a parameter of the name and the text says nothing of it.
        among: Which of the home's names are choices; None for all.
        trial: Called with what was bound, so that values that it refuses are refused here.

    Raises:
        ConfigError: The text is no call, there is no such name, it is not callable, or it does not take, or lacks,
            some keywords.

    >>> choose("beam(width=2)", home="tsr_gym.agents.strategies", what="strategy").keywords
    {'width': 2}
    """
    call = parse_call(text, what=what)
    function = _find(call.name, home, what, among)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"wanted the {what} as something that can be called, {call.name!r} cannot: {error}"
        ) from error
    own = list(parameters)[takes:]
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    if (unknown := sorted(set(call.keywords) - set(own))) and not takes_any:
        raise ConfigError(f"the {what} {call.name!r} has no {unknown}; it has {sorted(own)}")
    keywords = {name: value for name, value in (offered or {}).items() if name in own} | call.keywords
    empty, loose = inspect.Parameter.empty, (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = [name for name in own if parameters[name].default is empty and parameters[name].kind not in loose]
    if missing := [name for name in needed if name not in keywords]:
        raise ConfigError(f"the {what} {call.name!r} needs {missing}: write {call.name}({missing[0]}=...)")
    bound = partial(function, **keywords)
    try:
        inspect.signature(bound).bind(*[None] * takes)
        if trial is not None:
            trial(bound)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the {what} {text!r} cannot be used: {error}") from error
    return bound


def _find(name: str, home: str, what: str, among: Callable[[Any], bool] | None = None) -> Any:
    """Return what a name stands for."""
    if ":" in name:
        try:
            return load(name)
        except (ImportError, KeyError, ValueError) as error:
            raise ConfigError(f"there is no {what} {name!r} ({type(error).__name__}: {error})") from error
    module = vars(import_module(home))
    names = sorted(module.get("__all__") or _own_functions(module))
    choices = [name for name in names if among is None or among(module[name])]
    if name in choices:
        return module[name]
    raise no_such(what, name, choices)


def no_such(what: str, name: str, choices: Sequence[str], others: str = "package.module:name of yours") -> ConfigError:
    """Return the error of a name that nothing has, with the choices and the one that was perhaps meant.

    >>> print(no_such("strategy", "beem", ["beam", "naive"]))
    there is no strategy 'beem': did you mean beam? wanted one of beam, naive, or package.module:name of yours
    """
    close = get_close_matches(name, choices, 1)
    hint = f" did you mean {close[0]}?" if close else ""
    return ConfigError(f"there is no {what} {name!r}:{hint} wanted one of {', '.join(choices)}, or {others}")


def _own_functions(module: Mapping[str, Any]) -> list[str]:
    """Return the names of the public functions that a module defines."""
    named = [(name, value) for name, value in module.items() if inspect.isfunction(value) and name[0] != "_"]
    return [name for name, value in named if value.__module__ == module["__name__"]]


def fold(text: str, numbers: Mapping[str, Any], *, home: str, what: str) -> str:
    """Return a call with more keywords written into it.

    Args:
        text: A call.
        numbers: Keywords by name; None stands for a number that was not given.
        home: Module of bare names.
        what: What is called, for messages.

    Raises:
        ConfigError: A number stands in the call already, or what is called does not know it.

    >>> fold("beam(width=3)", {"branching": 4, "n": None}, home="tsr_gym.agents.strategies", what="strategy")
    'beam(width=3, branching=4)'
    """
    call = parse_call(text, what=what)
    given = {name: number for name, number in numbers.items() if number is not None}
    if both := sorted(set(given) & set(call.keywords)):
        raise ConfigError(
            f"{both[0]} stands in {text!r} and again as {both[0]}={given[both[0]]}: say it in one of the two places"
        )
    names = list(inspect.signature(_find(call.name, home, what)).parameters)
    if unknown := [name for name in given if name not in names]:
        raise ConfigError(
            f"the {what} {call.name!r} has no {unknown[0]}, got {unknown[0]}={given[unknown[0]]}; it has "
            f"{sorted(names[1:])}"
        )
    return str(Call(call.name, call.keywords | given))


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Return settings from texts of the form KEY=VALUE, where the value is JSON or, failing that, plain text.

    Raises:
        ConfigError: A text has no equals sign.

    >>> parse_settings(["solution_length=[3, 10]", "obs_type=coord"])
    {'solution_length': [3, 10], 'obs_type': 'coord'}
    """
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"wanted KEY=VALUE, got {pair!r}")
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return settings
