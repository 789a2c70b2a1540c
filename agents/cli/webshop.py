"""`tsr webshop`: import the original catalogue, generate a catalogue, and serve a shop to people."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import gymnasium as gym
import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.output import check_there, progress_bar
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_settings
from tsr_gym.optional import require


@dataclass(frozen=True, slots=True)
class ImportArgs:
    """Import the original files. After an interruption run it again; an old catalogue stays until then."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """The folder of items_shuffle*.json, items_ins_v2*.json and items_human_ins.json, or these files."""
    out: Path
    """Folder of the catalogue."""
    num_products: int | None = None
    """Import only this many items, from the beginning of the list."""
    nouns: bool = True
    """Store the nouns of all titles, if spaCy and a model are installed."""


@dataclass(frozen=True, slots=True)
class GenerateArgs:
    """Generate a catalogue of products that do not exist, with instructions."""

    products: int = 1000
    """Number of products."""
    seed: int = 0
    """Equal seeds give equal catalogues."""
    out: Path | None = None
    """Folder of the catalogue, ready for use."""
    files: Path | None = None
    """Folder for the same products as JSON files, in the original format."""


@dataclass(frozen=True, slots=True)
class ServeArgs:
    """Serve a shop as a web site: the same pages that an agent sees, with a score after the purchase."""

    catalogue: Path | None = None
    """Folder of a catalogue or of the original files; the embedded catalogue by default."""
    host: str = "127.0.0.1"
    """Address to listen on; every client that reaches it can shop."""
    port: int = 3000
    """Port, 0 for any free one."""
    goal: int | None = None
    """Number of the goal of all visitors; drawn for each trip by default."""
    seed: int | None = None
    """Equal seeds give equal goals in the same order."""
    out: Path | None = None
    """Folder for a file of each finished trip, in the format of an agent's trajectories."""
    env_set: tuple[str, ...] = ()
    """Settings of the environment as KEY=VALUE, the value in JSON, such as human_goals=true; turns are not limited."""


Args = (
    Annotated[ImportArgs, tyro.conf.subcommand(name="import")]
    | Annotated[GenerateArgs, tyro.conf.subcommand(name="generate")]
    | Annotated[ServeArgs, tyro.conf.subcommand(name="serve")]
)


def main(args: list[str]) -> int:
    """Import, generate or serve."""
    description = "WebShop: its catalogues, and the shop as a web site."
    options = read_arguments(Args, args, prog="tsr webshop", description=description)
    require("numba", "envs")
    if isinstance(options, ImportArgs):
        if not options.files:
            raise ConfigError("wanted a folder or files to import, got none")
        check_there(*options.files)
        return _import(options.files if len(options.files) > 1 else options.files[0], options)
    return _generate(options) if isinstance(options, GenerateArgs) else _serve(options)


def _import(files: Any, options: ImportArgs) -> int:
    from tsr_gym_envs.webshop.catalogue.opening import import_catalogue

    with progress_bar() as watch:
        catalogue = import_catalogue(
            files, options.out, num_products=options.num_products, with_nouns=options.nouns, progress=watch
        )
    print(f"{options.out}: {len(catalogue):,} products, digest {catalogue.digest}")
    return 0


def _generate(options: GenerateArgs) -> int:
    if options.out is None and options.files is None:
        raise ConfigError("wanted --out DIR for a catalogue or --files DIR for JSON files, got neither")
    if options.products < 1:
        raise ConfigError(f"wanted --products >= 1, got {options.products}")
    from tsr_gym_envs.webshop.generator import write_catalogue

    with TemporaryDirectory() as scratch:
        files = options.files or Path(scratch)
        with progress_bar() as watch:
            write_catalogue(
                files, options.products, options.seed, progress=lambda done, total: watch("products", done, total)
            )
        if options.files is not None:
            print(f"{files}: {options.products:,} products as JSON files")
        return 0 if options.out is None else _import(files, ImportArgs(files=(files,), out=options.out))


def _serve(options: ServeArgs) -> int:
    require("starlette", "serve")
    require("uvicorn", "serve")
    from tsr_gym_envs.serving import serve
    from tsr_gym_envs.webshop.site import shop_site
    from tsr_gym_envs.webshop.trips import Trips

    catalogue = None if options.catalogue is None else str(options.catalogue)
    settings = {"catalogue": catalogue, "max_turns": None, **parse_settings(options.env_set)}
    try:
        env = gym.make("tsr/WebShop-v0", **settings)
    except TypeError as error:
        raise ConfigError(f"the shop cannot be made: {error}") from error
    trips = Trips(env, goal=options.goal, seed=options.seed, out=options.out)

    def ready(url: str) -> None:
        print(f"{url}/: {len(trips.shop.catalogue):,} products, {len(trips.shop.goals):,} goals", flush=True)

    serve(shop_site(trips, host=options.host), host=options.host, port=options.port, ready=ready)
    return 0
