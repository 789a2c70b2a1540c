"""`tsr completion`: the script that completes commands, settings and choices in a shell; tyro writes it."""

from dataclasses import dataclass, make_dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import tyro

from tsr_gym.agents.cli.arguments import ASK, Asked, read_arguments
from tsr_gym.optional import load


@dataclass(frozen=True, slots=True)
class CompletionArgs:
    """Print the script that completes `tsr` in a shell.

    For bash, save it as ~/.local/share/bash-completion/completions/tsr.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """The shell."""


def main(args: list[str]) -> int:
    """Print the script."""
    options = read_arguments(CompletionArgs, args, prog="tsr completion")
    from tsr_gym.agents.cli import COMMANDS

    choices: list[Any] = []
    for name, (path, words) in COMMANDS.items():
        # tyro flattens a union inside a union, so subcommands such as `index` would become commands of tsr. As a field
        # of a dataclass they stay below their command.
        command_type: Any = make_dataclass("Command", [("what", _arguments_of(path))])
        choices.append(Annotated[command_type, tyro.conf.subcommand(name=name, description=words)])
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    try:
        tyro.cli(reduce(or_, choices), prog="tsr", args=["--tyro-print-completion", options.shell], config=config)
    except SystemExit as printed:
        return int(printed.code or 0)
    return 0


def _arguments_of(path: str) -> Any:
    """Return the dataclass of a command's arguments, or the union of those of its subcommands."""
    command: Any = load(path)
    try:
        command([ASK])
    except Asked as answer:
        return answer.arguments
    raise AssertionError(f"{path} reads no arguments")
