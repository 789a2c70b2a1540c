"""The `tsr` command: each subcommand is a function in a separate file, imported when it is called."""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from io import TextIOWrapper
from typing import Any

from tsr_gym.errors import ConfigError, TsrGymError
from tsr_gym.optional import load, require
from tsr_gym.version import __version__

COMMANDS = {
    "doctor": ("tsr_gym.agents.cli.doctor:main", "show what is installed, what works and what is missing"),
    "envs": ("tsr_gym.agents.cli.envs:main", "list environments, their settings, scorers and strategies"),
    "play": ("tsr_gym.agents.cli.play:main", "play an environment in the terminal"),
    "base-model": ("tsr_gym.agents.cli.base_model:main", "build the small embedded language model of an environment"),
    "train": ("tsr_gym.agents.cli.train:main", "train a language model on searched trajectories, or continue a run"),
    "eval": ("tsr_gym.agents.cli.evaluate:main", "play held-out instances with a model or a run"),
    "report": ("tsr_gym.agents.cli.report:main", "compare runs in tables and a plot"),
    "view": ("tsr_gym.agents.cli.view:main", "show runs and trees in a browser, or as one HTML file"),
    "calibrate": (
        "tsr_gym.agents.cli.calibrate:main",
        "compare a score with exact values, and a search with its budget",
    ),
    "probe": ("tsr_gym.agents.cli.probe:main", "measure what a success costs with searches, before any training"),
    "export": (
        "tsr_gym.agents.cli.export:main",
        "write preferences, values, trajectories or chats from the trees of runs",
    ),
    "tree": ("tsr_gym.agents.cli.tree:main", "print saved trees, with the nodes that were kept and their rewards"),
    "replay": ("tsr_gym.agents.cli.replay:main", "replay saved trees in their environment, compared bit for bit"),
    "completion": ("tsr_gym.agents.cli.completion:main", "print the script that completes tsr in a shell"),
    "audit": ("tsr_gym.agents.cli.audit:main", "check tokens, masks and log-probabilities of training rows"),
    "serve": ("tsr_gym.agents.cli.serve:main", "serve an environment to clients of MCP, with snapshots by name"),
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
        close = get_close_matches(args[0], COMMANDS, n=1)
        hint = f": did you mean {close[0]}?" if close else ""
        print(f"tsr: there is no command {args[0]!r}{hint}\n\n{USAGE}", file=sys.stderr)
        return 2
    if "" not in sys.path:
        # package.module:name may name a module in the current folder. Python searches that folder for `python -m`, but
        # not for an installed script.
        sys.path.append("")
    for stream in (sys.stdout, sys.stderr):
        # A text of a file may hold half of a surrogate pair, which no encoding has.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # At its end Python would look through all objects of torch and transformers for garbage, which takes two seconds.
    atexit.register(gc.freeze)
    try:
        for package in ("tyro", "rich"):
            require(package, "cli")
        command: Callable[[list[str]], int] = _callable(load(COMMANDS[args[0]][0]))
        status = command(args[1:])
        # Buffered output is written here, so that a closed pipe raises inside this try block.
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of the pipe, such as head, has closed it. Python flushes stdout once more at exit and would report
        # the error again, so the rest of the output goes to the null device.
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
