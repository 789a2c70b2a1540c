"""Stories: the generated games, each made at its first use and kept by what it is made of."""

from functools import lru_cache, partial
from hashlib import blake2b
from importlib.metadata import version
from itertools import count, islice
from pathlib import Path
from typing import Any

from tsr_gym.files import cache_home, first_use
from tsr_gym.optional import require
from tsr_gym_envs.settings import in_split
from tsr_gym_envs.textworld.games import STORY
from tsr_gym_envs.textworld.settings import TextWorldSettings, options_of
from tsr_gym_envs.zmachine.child import Child, shared_child

OPERATIONS = "tsr_gym_envs.textworld.games:operations"
# A large game takes some seconds; the machine may be busy.
GENERATE_SECONDS = 600.0


def library_version() -> str:
    """Return the version of TextWorld: other versions make other games.

    Raises:
        MissingExtra: TextWorld or Jericho is not installed.
    """
    require("textworld", "textworld")
    require("jericho", "textworld")
    return version("textworld")


def child() -> Child:
    """Return the process that plays games."""
    return shared_child(OPERATIONS)


@lru_cache(maxsize=64)
def numbers(settings: TextWorldSettings) -> tuple[int, ...]:
    """Return the numbers of the games of a split, ascending; numbers of different splits never meet."""
    named = f"{settings.game}/{settings.level}"
    members = (number for number in count() if in_split(f"{named}/{number}".encode(), settings.split))
    return tuple(islice(members, settings.num_games))


@lru_cache(maxsize=1024)
def story_of(settings: TextWorldSettings, number: int) -> Path:
    """Return the file of a game; TextWorld makes it where it is not there yet.

    Args:
        settings: What decides the games; the form of observations and the limits do not count.
        number: The game's seed.
    """
    options = options_of(settings)
    made_of = (library_version(), settings.game, sorted(options.items(), key=str), number)
    key = blake2b(repr(made_of).encode(), digest_size=8).hexdigest()
    folder = cache_home() / "textworld" / f"{settings.game}-{settings.level}-{number}-{key}"
    return first_use(folder, STORY, partial(_write, settings.game, options, number)) / STORY


def _write(game: str, options: dict[str, Any], number: int, folder: Path) -> None:
    child().ask("generate", folder.resolve(), game, options, number, seconds=GENERATE_SECONDS)
