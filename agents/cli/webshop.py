"""`tsr webshop`: import the original's catalogue, generate one, and serve a shop to people."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import gymnasium as gym
import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import progress_bar
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_settings
from tsr_gym.optional import require


@dataclass(frozen=True, slots=True)
class ImportArgs:
    """Import the original's files. An interrupted run is simply run again; an old catalogue stays until it is done."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """The folder of items_shuffle*.json, items_ins_v2*.json and items_human_ins.json, or these files."""
    out: Path
    """Folder of the catalogue."""
    num_products: int | None = None
    """Import only the first so many items of the list."""
    nouns: bool = True
    """Store the nouns of all titles, where spaCy and a model are installed."""


@dataclass(frozen=True, slots=True)
class GenerateArgs:
    """Generate a catalogue of products that do not exist, with instructions."""

    products: int = 1000
    """How many."""
    seed: int = 0
    """Equal seeds give equal catalogues."""
    out: Path | None = None
    """Folder of the catalogue, ready to be used."""
    files: Path | None = None
    """Folder for the same as JSON files, in the original's format."""


@dataclass(frozen=True, slots=True)
class ServeArgs:
    """Serve a shop as a web site: the very pages that an agent sees, with a score after the purchase."""

    catalogue: Path | None = None
    """Folder of a catalogue or of the original's files; the embedded catalogue where it is left out."""
    host: str = "127.0.0.1"
    """Address to listen at; whoever reaches it can shop."""
    port: int = 3000
    """Port, 0 for any free one."""
    goal: int | None = None
    """Number of everybody's goal; drawn for each trip where it is left out."""
    seed: int | None = None
    """Equal seeds give equal goals in the same order."""
    out: Path | None = None
    """Folder for a file of each trip that has ended, in the format of an agent's."""
    env_set: tuple[str, ...] = ()
    """Settings of the environment as KEY=VALUE, the value in JSON, such as human_goals=true; no limit of turns else."""


Args = (
    Annotated[ImportArgs, tyro.conf.subcommand(name="import")]
    | Annotated[GenerateArgs, tyro.conf.subcommand(name="generate")]
    | Annotated[ServeArgs, tyro.conf.subcommand(name="serve")]
)


def main(args: list[str]) -> int:
    """Import, generate or serve."""
    description = "WebShop: its catalogues, and the shop as a web site."
    chosen = read_arguments(Args, args, prog="tsr webshop", description=description)
    require("numba", "envs")
    if isinstance(chosen, ImportArgs):
        if not chosen.files:
            raise ConfigError("wanted a folder or files to import, got none")
        return _import(chosen.files if len(chosen.files) > 1 else chosen.files[0], chosen)
    return _generate(chosen) if isinstance(chosen, GenerateArgs) else _serve(chosen)


def _import(files: Any, chosen: ImportArgs) -> int:
    from tsr_gym_envs.webshop.catalogue.opening import import_catalogue

    with progress_bar() as watch:
        catalogue = import_catalogue(
            files, chosen.out, num_products=chosen.num_products, with_nouns=chosen.nouns, progress=watch
        )
    print(f"{chosen.out}: {len(catalogue):,} products, digest {catalogue.digest}")
    return 0


def _generate(chosen: GenerateArgs) -> int:
    if chosen.out is None and chosen.files is None:
        raise ConfigError("wanted --out DIR for a catalogue or --files DIR for JSON files, got neither")
    if chosen.products < 1:
        raise ConfigError(f"wanted --products >= 1, got {chosen.products}")
    from tsr_gym_envs.webshop.generator import write_catalogue

    with TemporaryDirectory() as scratch:
        files = chosen.files or Path(scratch)
        with progress_bar() as watch:
            write_catalogue(
                files, chosen.products, chosen.seed, progress=lambda done, total: watch("products", done, total)
            )
        if chosen.files is not None:
            print(f"{files}: {chosen.products:,} products as JSON files")
        return 0 if chosen.out is None else _import(files, ImportArgs(files=(files,), out=chosen.out))


def _serve(chosen: ServeArgs) -> int:
    require("starlette", "serve")
    require("uvicorn", "serve")
    from tsr_gym_envs.serving import serve
    from tsr_gym_envs.webshop.site.app import shop_site
    from tsr_gym_envs.webshop.site.trips import Trips as begin_trips

    catalogue = None if chosen.catalogue is None else str(chosen.catalogue)
    settings = {"catalogue": catalogue, "max_turns": None, **parse_settings(chosen.env_set)}
    try:
        env = gym.make("tsr/WebShop-v0", **settings)
    except TypeError as error:
        raise ConfigError(f"the shop cannot be made: {error}") from error
    trips = begin_trips(env, goal=chosen.goal, seed=chosen.seed, out=chosen.out)

    def ready(url: str) -> None:
        print(f"{url}/: {len(trips.shop.catalogue):,} products, {len(trips.shop.goals):,} goals", flush=True)

    serve(shop_site(trips, host=chosen.host), host=chosen.host, port=chosen.port, ready=ready)
    return 0
