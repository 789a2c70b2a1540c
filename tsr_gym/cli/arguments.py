"""How every subcommand reads its arguments."""

from collections.abc import Sequence
from typing import Any

import tyro

# The command line with which a command is asked what arguments it reads, and does nothing else.
ASK = "--which-arguments"


class Asked(Exception):
    """The answer of a command that was asked what arguments it reads.

    Attributes:
        kind: The dataclass, or a union of those of subcommands.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind


def read_arguments(
    kind: Any, args: Sequence[str], *, prog: str, description: str | None = None, positional: bool = False
) -> Any:
    """Return what a command line says, as an instance of a dataclass.

    Args:
        kind: The dataclass, or a union of those of subcommands; fields of its parts are flags without a prefix.
        args: The command line after the command.
        prog: The command.
        description: Of the command, instead of the dataclass's docstring.
        positional: Whether fields without a default are given without their names.

    Raises:
        Asked: The command line is `ASK`.
    """
    if list(args) == [ASK]:
        raise Asked(kind)
    config = (tyro.conf.OmitArgPrefixes, *((tyro.conf.PositionalRequiredArgs,) if positional else ()))
    return tyro.cli(kind, args=args, prog=prog, description=description, config=config)
