"""`tsr view`: show runs and trees in a browser, or write them as one HTML file."""

import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar
from tsr_gym.errors import ConfigError
from tsr_gym.registration import trusted_modules


@dataclass(frozen=True, slots=True)
class ViewArgs:
    """Show runs and their trees in a browser: served on this machine only, or as one HTML file that loads nothing."""

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, drawn into the same plots, folders of trees, or files of trees."""
    port: int = 8600
    """Port on this machine, 0 for any free one."""
    open: bool = True
    """Open the browser."""
    export: Path | None = None
    """Write one HTML file instead, which needs no server and no network."""
    trees: int = 100
    """Most trees in the file; the newest are kept."""
    env: str | None = None
    """Environment as package.module:Id, whose module is imported so that its states are drawn; no module is imported
    because a file names it."""


def main(args: list[str]) -> int:
    """Serve the page until interrupted, or write the file."""
    options = read_arguments(ViewArgs, args, prog="tsr view")
    modules = trusted_modules(options.env)
    if options.export is not None:
        from tsr_gym.agents.reports.view.server import export_page

        with progress_bar() as watch:
            written = export_page(options.paths, options.export, most_trees=options.trees, modules=modules, watch=watch)
        left = f", {written.left_out:,} older ones left out (--trees)" if written.left_out else ""
        print(f"{options.export}: {_count(written.trees, 'tree')}{left}, {written.size / 1e6:.1f} MB")
        return 0
    from tsr_gym.agents.reports.view.server import address_of, make_server
    from tsr_gym.agents.reports.view.site import Site

    with progress_bar("listing runs and trees"):
        shown = Site(options.paths, modules)
    try:
        server = make_server(shown, options.port)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"port {options.port} cannot be listened at ({error}): choose another --port") from error
    with server:
        runs, trees = _count(len(shown.sources.runs), "run"), _count(len(shown.sources.trees), "tree")
        print(f"{address_of(server)}: {runs}, {trees}", flush=True)
        print("Ctrl+C ends it.", flush=True)
        if options.open:
            webbrowser.open(address_of(server))
        # Ctrl+C is the normal end of the server.
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
