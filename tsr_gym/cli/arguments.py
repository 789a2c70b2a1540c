"""How every subcommand reads its arguments."""

from collections.abc import Sequence
from typing import Any

import tyro


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
    """
    config = (tyro.conf.OmitArgPrefixes, *((tyro.conf.PositionalRequiredArgs,) if positional else ()))
    return tyro.cli(kind, args=args, prog=prog, description=description, config=config)
