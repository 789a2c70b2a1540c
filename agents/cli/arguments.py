"""Arguments of every subcommand: the sections of a configuration become flags, and parsed flags become sections."""

import ast
import inspect
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, make_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import tyro

from tsr_gym.keywords import Choice
from tsr_gym.sections import settings_of, values_of

# The command line on which a command raises `Asked` with its arguments and does nothing else; `tsr completion` uses it.
ASK = "--which-arguments"
# Words of the help for the types of values.
TYPES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Numbers in the calls of search and filter, as flags: --width 2 for beam(width=2)."""

    n: int | None = None
    """Best-of-N: episodes per search (paper: 32)."""
    width: int | None = None
    """Beam: paths that are kept, the paper's B (paper: 2)."""
    branching: int | None = None
    """Candidates per turn, the paper's M (paper: 4)."""
    depth: int | None = None
    """Lookahead: further turns per candidate, the paper's D (paper: 2)."""
    keep: float | None = None
    """Filter: share of the groups that are kept (paper: 0.25); with top_p, of the variation."""


class Asked(Exception):
    """The arguments of a command, raised when its command line is `ASK`.

    Attributes:
        arguments: The dataclass, or a union of those of subcommands.
    """

    def __init__(self, arguments: Any) -> None:
        self.arguments = arguments


def read_arguments(
    arguments: Any,
    args: Sequence[str],
    *,
    prog: str,
    description: str | None = None,
    positional: bool = False,
) -> Any:
    """Return the dataclass instance that a command line describes.

    Args:
        arguments: The dataclass, or a union of those of subcommands; fields of its sections are flags without a prefix.
        args: The command line after the command.
        prog: The command.
        description: Description of the command; None for the dataclass's docstring.
        positional: Whether fields without a default are given without their names.

    Raises:
        Asked: The command line is `ASK`.
        ConfigError: A section refuses a value.
        SystemExit: The help was printed, or the command line cannot be read.
    """
    # A command with subcommands has a union of dataclasses, each annotated with the name of its subcommand.
    parts = [arguments] if isinstance(arguments, type) else get_args(arguments)
    sections: dict[type[Any], type[Any]] = {}
    union: Any = None
    for part in parts:
        section, *marks = (part,) if isinstance(part, type) else get_args(part)
        flags = flags_of(section)
        sections[flags] = section
        member: Any = Annotated[(flags, *marks)] if marks else flags
        union = member if union is None else union | member
    if list(args) == [ASK]:
        raise Asked(union)
    parsed = parse(union, args, prog=prog, description=description, positional=positional)
    return built(sections[type(parsed)], parsed)


def parse(
    flags: Any, args: Sequence[str], *, prog: str, description: str | None = None, positional: bool = False
) -> Any:
    """Return the instance of a dataclass of flags that a command line describes; see `read_arguments`."""
    config = (tyro.conf.OmitArgPrefixes, *((tyro.conf.PositionalRequiredArgs,) if positional else ()))
    return tyro.cli(flags, args=list(args), prog=prog, description=description, config=config)


def flags_of(
    section: type[Any],
    values: Mapping[str, Any] | None = None,
    *,
    without: Collection[str] = (),
    only: Collection[str] | None = None,
) -> type[Any]:
    """Return a dataclass with the fields and docstrings of a section, with types that a command line can hold.

    The dataclass checks no values; the section checks them when it is built.

    Args:
        section: A dataclass, with sections in it or not.
        values: Defaults by the names of settings, in place of the section's own.
        without: Settings to leave out.
        only: Settings to keep; None for all.
    """
    hints, texts = get_type_hints(section, include_extras=True), _docstrings(cast(Hashable, section))
    own: list[tuple[str, Any, Any]] = []
    for item in fields(section):
        hint = hints[item.name]
        if isinstance(hint, type) and is_dataclass(hint):
            inner = values
            if item.default_factory is not MISSING:
                inner = settings_of(item.default_factory()) | dict(values or {})
            flags = flags_of(hint, inner, without=without, only=only)
            if fields(flags):
                own.append((item.name, flags, field(default_factory=flags) if _has_defaults(flags) else field()))
        elif item.name not in without and (only is None or item.name in only):
            own.append((item.name, _plain(hint, item, texts.get(item.name)), _default(item, values or {})))
    return make_dataclass(section.__name__, own, namespace={"__doc__": section.__doc__}, frozen=True, kw_only=True)


def built(section: type[Any], parsed: Any) -> Any:
    """Return the section whose flags were parsed; settings without a flag keep their defaults."""
    values = values_of(parsed)
    for name, hint in get_type_hints(section).items():
        if name in values and isinstance(hint, type) and is_dataclass(hint):
            values[name] = built(hint, values[name])
    return section(**values)


def _has_defaults(flags: type[Any]) -> bool:
    return all(item.default is not MISSING or item.default_factory is not MISSING for item in fields(flags))


def _default(item: "Field[Any]", values: Mapping[str, Any]) -> Any:
    if item.name in values:
        return field(default=_plain_value(values[item.name]))
    if item.default_factory is not MISSING:
        return field(default_factory=item.default_factory)
    return field() if item.default is MISSING else field(default=_plain_value(item.default))


def _plain_value(value: Any) -> Any:
    """Return a value with plain text in place of a `Choice`, because tyro takes the type of a flag from its default."""
    if isinstance(value, tuple):
        return tuple(map(_plain_value, value))
    return str(value) if isinstance(value, Choice) else value


def _plain(hint: Any, item: "Field[Any]", text: str | None) -> Any:
    """Return the type of a flag, with text in place of a choice, annotated with its metavar and its help."""
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *given = get_args(hint)
        marks = tuple(given)
    optional = get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)
    value: Any = next(part for part in get_args(hint) if part is not NoneType) if optional else hint
    many = get_origin(value) is tuple
    single = get_args(value)[0] if many else value
    metavar = item.metadata.get("metavar") or ("ENV" if item.name == "env" else TYPES.get(single))
    if single is Choice:
        metavar, single = "CALL", str
        value = tuple[str, ...] if many else str
    words = metavar and (f"{metavar} ..." if many else metavar)
    if single is bool or get_origin(single) is Literal:
        words = None
    marks = (tyro.conf.arg(metavar=words, help=text), *marks)
    return Annotated[(value | None if optional else value, *marks)]


@cache
def _docstrings(section: Any) -> dict[str, str]:
    """Return the docstrings below the fields of a class and of those that it inherits from, each in one line."""
    texts: dict[str, str] = {}
    for owner in reversed([parent for parent in section.__mro__ if is_dataclass(parent)]):
        body = cast(ast.ClassDef, ast.parse(dedent(inspect.getsource(cast("type[Any]", owner)))).body[0]).body
        for line, below in pairwise(body):
            match line, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = " ".join(text.split())
    return texts
