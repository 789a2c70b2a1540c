"""The `tsr` command: each subcommand is a function in a file of its own, imported when it is called."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tsr_gym.errors import ConfigError, TsrGymError
from tsr_gym.optional import load, require
from tsr_gym.version import __version__

COMMANDS = {
    "doctor": ("tsr_gym.agents.cli.doctor:main", "say what is installed, what works and what is missing"),
    "envs": ("tsr_gym.agents.cli.envs:main", "list environments, their settings, scorers and strategies"),
    "play": ("tsr_gym.agents.cli.play:main", "play an environment in the terminal"),
    "base-model": ("tsr_gym.agents.cli.base_model:main", "build the small embedded language model of an environment"),
    "train": ("tsr_gym.agents.cli.train:main", "train a language model on searched trajectories, or go on with a run"),
    "eval": ("tsr_gym.agents.cli.evaluate:main", "play held-out instances with a model or a run"),
    "report": ("tsr_gym.agents.cli.report:main", "compare runs in a table and a picture"),
    "view": ("tsr_gym.agents.cli.view:main", "show runs and trees in a browser, or as one HTML file"),
    "calibrate": (
        "tsr_gym.agents.cli.calibrate:main",
        "compare a score with exact values, and a search with its budget",
    ),
    "probe": ("tsr_gym.agents.cli.probe:main", "say what a success costs by searches, before any learning"),
    "export": (
        "tsr_gym.agents.cli.export:main",
        "write preferences, values, trajectories or chats from the trees of runs",
    ),
    "tree": ("tsr_gym.agents.cli.tree:main", "print saved trees, with what was kept and what it earned"),
    "replay": ("tsr_gym.agents.cli.replay:main", "hold saved trees against their environment, bit for bit"),
    "completion": ("tsr_gym.agents.cli.completion:main", "print a script with which a shell completes tsr"),
    "audit": ("tsr_gym.agents.cli.audit:main", "check tokens, masks and log-probabilities of anybody's training rows"),
    "webshop": ("tsr_gym.agents.cli.webshop:main", "import, generate or serve a WebShop catalogue"),
    "retrieval": ("tsr_gym.agents.cli.retrieval:main", "index a corpus, or serve an index over HTTP"),
}
USAGE = "\n".join(
    [
        f"tsr-gym {__version__}: environments in which language-model agents learn by searching",
        "",
        "usage: tsr COMMAND [OPTIONS]",
        "",
        *[f"  {name:<11} {text}" for name, (_, text) in COMMANDS.items()],
        "",
        "tsr COMMAND --help explains a command.",
    ]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0 done, 1 failed, 2 wrong settings, 130 interrupted."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    if args[0] in ("-V", "--version"):
        print(__version__)
        return 0
    if args[0] not in COMMANDS:
        print(f"tsr: no command {args[0]!r}\n\n{USAGE}", file=sys.stderr)
        return 2
    if "" not in sys.path:
        # Modules of yours lie where you are; the script alone would look only where it is installed.
        sys.path.append("")
    try:
        for package in ("tyro", "rich"):
            require(package, "cli")
        command: Callable[[list[str]], int] = _callable(load(COMMANDS[args[0]][0]))
        status = command(args[1:])
        # What is still held back is written here, where its reader may have left.
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Its reader, such as head, has enough. What is held back goes nowhere, so that nothing complains at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (TsrGymError, OSError) as error:
        print(f"tsr {args[0]}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print(f"tsr {args[0]}: interrupted", file=sys.stderr)
        return 130


def _callable(value: object) -> Callable[..., Any]:
    assert callable(value)
    return value
