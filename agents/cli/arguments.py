"""How every subcommand reads its arguments."""

from collections.abc import Collection, Sequence
from types import UnionType
from typing import Any, Union, get_origin

import tyro

from tsr_gym.agents.cli.help_text import cut, errors_spelled, help_text
from tsr_gym.errors import ConfigError

# The command line with which a command is asked what arguments it reads, and does nothing else.
ASK = "--which-arguments"
HELP = ("-h", "--help")


class Asked(Exception):
    """The answer of a command that was asked what arguments it reads.

    Attributes:
        kind: The dataclass, or a union of those of subcommands.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind


def read_arguments(
    kind: Any,
    args: Sequence[str],
    *,
    prog: str,
    description: str | None = None,
    positional: bool = False,
    without: Collection[str] = (),
) -> Any:
    """Return what a command line says, as an instance of a dataclass.

    Args:
        kind: The dataclass, or a union of those of subcommands; fields of its parts are flags without a prefix.
        args: The command line after the command.
        prog: The command.
        description: Of the command, instead of the dataclass's docstring.
        positional: Whether fields without a default are given without their names.
        without: Flags of the parts that the command has no use for; they are not shown and not taken.

    Raises:
        Asked: The command line is `ASK`.
        ConfigError: One of the flags is given that it has no use for.
        SystemExit: Help was asked for and is printed, or the command line cannot be read.
    """
    if list(args) == [ASK]:
        raise Asked(kind)
    if set(HELP) & set(args):
        text = whole_help(kind, args, prog=prog, description=description, positional=positional)
        print(cut(text, lambda flag: flag not in without))
        raise SystemExit(0)
    if unused := sorted({arg.partition("=")[0] for arg in args} & set(without)):
        raise ConfigError(f"there is no use for {', '.join(unused)} here: leave it out")
    with errors_spelled(prog):
        return tyro.cli(kind, args=args, prog=prog, description=description, config=_config(positional))


def whole_help(
    kind: Any, args: Sequence[str] = (), *, prog: str, description: str | None = None, positional: bool = False
) -> str:
    """Return the help of a command with all its settings; the arguments are those of `read_arguments`."""
    several = get_origin(kind) in (Union, UnionType)
    command = [arg for arg in args[:1] if several and not arg.startswith("-")]
    return help_text(kind, command, prog=prog, config=_config(positional), description=description)


def _config(positional: bool) -> tuple[Any, ...]:
    return (tyro.conf.OmitArgPrefixes, *((tyro.conf.PositionalRequiredArgs,) if positional else ()))
