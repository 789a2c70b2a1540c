"""The help of a command with many settings, cut to those that are asked for first."""

from collections.abc import Collection
from typing import Any

from tsr_gym.agents.cli.arguments import whole_help
from tsr_gym.agents.cli.help_text import cut


def short_help(kind: Any, flags: Collection[str], *, prog: str, positional: bool = False) -> str:
    """Return a command's help with some of its settings, in the groups that they stand in.

    Args:
        kind: The dataclass that the command reads its arguments as.
        flags: The settings, such as ``--seed``.
        prog: The command.
        positional: As in `read_arguments`.
    """
    text = cut(whole_help(kind, prog=prog, positional=positional), lambda flag: flag in flags)
    return f"{text}\n{prog} --help-all shows every setting."
