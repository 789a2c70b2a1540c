"""The path of a new user, from the documents alone: their commands and their Python, in their order, and the seconds.

A fresh clone and a fresh virtual environment; then every block of the five-minute start, up to trained curves in the
viewer, and every block of the pages on an environment of one's own, up to one that was searched and trained. Nothing is
typed that does not stand in a page. Wall-clock seconds, with all other load of the machine.
Run: python -m benchmarks.new_user [--libraries SITE_PACKAGES]
"""

import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple
from urllib.request import urlopen

from benchmarks.measure import run_timed, write_result

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/")
INSTALL = "pip install"
START = "docs/index.md"
# The short ones first, so that what was walked is known where a long one is broken off.
JOURNEYS = {
    "clone to an environment of others searched": "docs/search_yours.md",
    "clone to an environment of one's own checked, trained and searched": "docs/tutorials/own_environment.md",
    "clone to first trained curve": START,
}


class Step(NamedTuple):
    """One step of a page; `text` is a command line, or Python."""

    page: str
    kind: str
    text: str


def steps_of(page: str) -> Iterator[Step]:
    """Yield the command lines of a page, and its Python in one piece where it first stands."""
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    python = [text for language, text in blocks if language == "python"]
    begun = False
    for language, text in blocks:
        if language == "python" and not begun:
            begun = True
            yield Step(page, language, "\n".join(python))
        if language == "console":
            lines = text.replace("\\\n", " ").splitlines()
            yield from (Step(page, language, line.split("  #")[0].strip()) for line in lines if line.strip())


def timed(step: Step, where: Path) -> dict[str, Any]:
    """Do a step in the clone and return its seconds; what asks or serves is left as soon as it has answered.

    Raises:
        SystemExit: It failed.
    """
    venv = where / ".venv" / "bin"
    environ = {
        **os.environ,
        "PATH": f"{venv}:{os.environ['PATH']}",
        "TSR_GYM_CACHE": str(where / ".cache"),
        "BROWSER": "true",
        "OMP_NUM_THREADS": "1",
    }
    began = perf_counter()
    if step.text.startswith("tsr view"):
        status, output = _served(step.text, where, environ)
    else:
        words = ["bash", "-c", step.text] if step.kind == "console" else [str(venv / "python"), "-c", step.text]
        done = subprocess.run(
            words, cwd=where, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        status, output = done.returncode, done.stdout + done.stderr
    seconds = perf_counter() - began
    shown = step.text if step.kind == "console" else f"the Python of {step.page}"
    print(f"{seconds:7.1f} s  {shown}", flush=True)
    # A machine may lack what only some extras need; everything else has to work.
    if status and not step.text.startswith("tsr doctor"):
        sys.exit(f"{shown} ended with status {status}:\n{output[-4000:]}")
    return {"page": step.page, "step": shown, "seconds": round(seconds, 1), "status": status}


def _served(command: str, where: Path, environ: dict[str, str]) -> tuple[int, str]:
    """Return once the page that a command serves has been read."""
    words = ["bash", "-c", f"exec {command}"]
    with subprocess.Popen(words, cwd=where, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        first = server.stdout.readline()
        address = ADDRESS.search(first)
        if address:
            with urlopen(address[0]) as answer:
                answer.read()
        server.terminate()
    return int(address is None), first


def begin(where: Path, libraries: Path | None) -> list[dict[str, Any]]:
    """Clone, make a virtual environment, and let it see libraries that are there already."""
    began = perf_counter()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(where)], check=True)
    cloned = perf_counter()
    subprocess.run([sys.executable, "-m", "venv", str(where / ".venv")], check=True)
    if libraries is not None:
        (site,) = (where / ".venv" / "lib").glob("python*/site-packages")
        (site / "libraries.pth").write_text(f"{libraries}\n")
    named = {"git clone": cloned - began, "python -m venv .venv": perf_counter() - cloned}
    return [{"page": "", "step": name, "seconds": round(seconds, 1), "status": 0} for name, seconds in named.items()]


def _sum(steps: list[dict[str, Any]]) -> float:
    return round(sum(step["seconds"] for step in steps), 1)


def main() -> None:
    """Walk all paths in one clone, and write what took how long."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", type=Path, help="site-packages with the libraries; pip then installs ours alone")
    parser.add_argument("--out", type=Path, help="another file for the result")
    args = parser.parse_args()
    about = {
        "what": "wall-clock seconds of every step that the pages name, other work beside it on the same cores",
        "libraries": "were there already: pip installed this package alone" if args.libraries else "installed by pip",
    }
    journeys: dict[str, Any] = {}
    with TemporaryDirectory() as scratch:
        where = Path(scratch) / "tsr-gym"
        setup = begin(where, args.libraries)
        setup += [timed(step, where) for step in steps_of(START) if step.text.startswith(INSTALL)]
        for name, page in JOURNEYS.items():
            own = [timed(step, where) for step in steps_of(page) if not step.text.startswith(INSTALL)]
            journeys[name] = {"seconds": _sum(setup + own), "of them setup": _sum(setup), "steps": own}
            write_result("new_user", {**about, "setup": setup, "journeys": journeys}, out=args.out)


if __name__ == "__main__":
    run_timed(main)
