"""`tsr view`: look at runs and trees in a browser, or keep them as one HTML file."""

import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar
from tsr_gym.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ViewArgs:
    """Show runs and their trees in a browser: a page on this machine alone, or one HTML file that loads nothing."""

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, which are drawn over each other, folders of trees, or files of trees."""
    port: int = 8600
    """Port on this machine, 0 for any free one."""
    open: bool = True
    """Whether the browser is opened."""
    export: Path | None = None
    """Write one HTML file instead, which needs no server and no network."""
    trees: int = 100
    """Most trees that the file holds, the newest ones."""


def main(args: list[str]) -> int:
    """Serve the page until interrupted, or write the file."""
    chosen = read_arguments(ViewArgs, args, prog="tsr view")
    if chosen.export is not None:
        from tsr_gym.agents.reports.view.pages import export_page as export

        with progress_bar() as watch:
            written = export(chosen.paths, chosen.export, most_trees=chosen.trees, watch=partial(watch, "trees"))
        left = f", {written.left_out:,} older ones left out (--trees)" if written.left_out else ""
        print(f"{chosen.export}: {_count(written.trees, 'tree')}{left}, {written.size / 1e6:.1f} MB")
        return 0
    from tsr_gym.agents.reports.view.server import address_of, make_server
    from tsr_gym.agents.reports.view.site import Site as site

    shown = site(chosen.paths)
    try:
        server = make_server(shown, chosen.port)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"port {chosen.port} cannot be listened at ({error}): choose another --port") from error
    with server:
        runs, trees = _count(len(shown.sources.runs), "run"), _count(len(shown.sources.trees), "tree")
        print(f"{address_of(server)}: {runs}, {trees}", flush=True)
        print("Ctrl+C ends it.", flush=True)
        if chosen.open:
            webbrowser.open(address_of(server))
        # That is how it is ended.
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
