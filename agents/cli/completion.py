"""`tsr completion`: a script with which a shell completes commands, settings and choices; tyro writes it."""

from dataclasses import dataclass, make_dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import tyro

from tsr_gym.agents.cli.arguments import ASK, Asked, read_arguments
from tsr_gym.optional import load


@dataclass(frozen=True, slots=True)
class CompletionArgs:
    """Print what completes `tsr` in a shell; for bash, save it as ~/.local/share/bash-completion/completions/tsr."""

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Which shell."""


def main(args: list[str]) -> int:
    """Print the script."""
    chosen = read_arguments(CompletionArgs, args, prog="tsr completion")
    from tsr_gym.agents.cli import COMMANDS as commands

    kinds: list[Any] = []
    for name, (path, words) in commands.items():
        # A union of subcommands would be read as more commands; as a field it stands below its own.
        kind: Any = make_dataclass("Command", [("what", _arguments_of(path))])
        kinds.append(Annotated[kind, tyro.conf.subcommand(name=name, description=words)])
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    try:
        tyro.cli(reduce(or_, kinds), prog="tsr", args=["--tyro-print-completion", chosen.shell], config=config)
    except SystemExit as printed:
        return int(printed.code or 0)
    return 0


def _arguments_of(path: str) -> Any:
    """Return the dataclass, or the union of several, that a command reads its arguments as."""
    command: Any = load(path)
    try:
        command([ASK])
    except Asked as answer:
        return answer.arguments
    raise AssertionError(f"{path} reads no arguments")
