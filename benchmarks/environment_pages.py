"""Pages of the environments for the documents, from their docstrings, each with a picture that is drawn here.

Run: python -m benchmarks.environment_pages   (needs the extras envs and agents; writes pages and pictures below docs)
"""

import re
from inspect import getdoc
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from matplotlib import font_manager, pyplot
from PIL import Image, ImageDraw, ImageFont

import tsr_gym
from tsr_gym.agents.cli.game import readable
from tsr_gym.registration import SHORT_NAMES

DOCS = Path(__file__).resolve().parent.parent / "docs"
# Turns of the oracle that a picture shows, and the size of a text in it.
FRAMES, FONT_SIZE = 4, 13


class Page(NamedTuple):
    """What a page has in addition to the docstring.

    Attributes:
        env: Id of the environment.
        seed: Of the instance in the picture.
        turns: Turns that are played for the picture; those of the oracle where none are given.
        caption: Under the picture.
        further: Page with everything else, and its name.
    """

    env: str
    seed: int
    turns: tuple[str, ...]
    caption: str
    further: tuple[str, str]


PAGES = {
    "sokoban": Page(
        *("tsr/Sokoban-v0", 5, ()),
        "An episode of the oracle, action by action.",
        ("../grid_worlds.md", "arrays, batches, levels, deadlocks and the solver"),
    ),
    "frozen_lake": Page(
        *("tsr/FrozenLake-v0", 22, ()),
        "An episode of the best policy, action by action: the ice may carry the player elsewhere.",
        ("../grid_worlds.md", "arrays, batches and exact optima"),
    ),
    "webshop": Page(
        *("tsr/WebShop-v0", 1, ("search[red running shoes]",)),
        "A page of results, as `tsr play` lays it out.",
        ("../webshop.md", "rules and repairs, catalogues, guides for search, the shop as a web site"),
    ),
    "database": Page(
        *("tsr/Database-v0", 0, ()),
        "A customer's request, the rules and the tools, and the first calls of the plan.",
        ("../scores.md", "the scores of all worlds, which guide a search"),
    ),
    "countdown": Page(
        *("tsr/Countdown-v0", 3, ()),
        "An instance, as `tsr play` shows it.",
        ("../scores.md", "its public guide, and search with proven dead ends"),
    ),
    "retrieval_qa": Page(
        *("tsr/RetrievalQA-v0", 0, ("<search>the book Letters from a Midnight Summer author</search>",)),
        "A question and the passages of a search, as `tsr play` lays them out.",
        ("../retrieval_qa.md", "protocols, retrievers, corpora of your own, BM25 against its peers"),
    ),
    "shell": Page(
        *("tsr/Shell-v0", 3, ()),
        "A task after the first command of the oracle.",
        ("../shell.md", "what is closed, limits, families of tasks, how they were tested, speed"),
    ),
}


def page_text(name: str) -> str:
    """Return the page of an environment in Gymnasium's form."""
    page = PAGES[name]
    env = gym.make(page.env)
    title, _, sections = (getdoc(type(env.unwrapped)) or "").partition("\n")
    short = next(short for short, env_id in SHORT_NAMES.items() if env_id == page.env)
    target, more = page.further
    return f"""# {page.env.removeprefix("tsr/").partition("-v")[0]}

{title}

![{page.caption}](../images/env_{name}.png)

{page.caption} The text below is the docstring of `{type(env.unwrapped).__module__}:{type(env.unwrapped).__name__}`.

```python
import gymnasium as gym
import tsr_gym

env = gym.make("{page.env}")
observation, info = env.reset(seed={page.seed})
print(env.action_space, env.observation_space, observation, sep="\\n")
```

```console
tsr envs {short}      # every setting with its type and default, and the scorers
tsr play {short}
```

{_as_markdown(sections.strip())}

More: [{more}]({target}).
"""


def _as_markdown(text: str) -> str:
    """Return a docstring without the double backticks of reStructuredText, and with signs that tables can hold."""
    plain = re.sub(r"``([^`]+)``", r"`\1`", text)
    return re.sub(r"^\|.*$", lambda row: row[0].replace("`||`", "`\\|\\|`"), plain, flags=re.MULTILINE)


def draw(name: str) -> Image.Image:
    """Return the picture of an environment: boards side by side where it draws them, else a page of its text."""
    page = PAGES[name]
    boards = "rgb_array" in gym.make(page.env).metadata["render_modes"]
    env = gym.make(page.env, render_mode="rgb_array" if boards else None)
    base: Any = env.unwrapped
    observation, info = env.reset(seed=page.seed)
    first, frames = str(observation), [env.render()] if boards else []
    turns = iter(page.turns)
    while len(frames) < FRAMES and not (base.episode.terminated or base.episode.truncated):
        action = next(turns, None) if page.turns else _best_action(base, info)
        if action is None:
            break
        observation, _, _, _, info = env.step(action)
        frames += [env.render()] if boards else []
    if boards:
        return _side_by_side([np.asarray(frame) for frame in frames])
    buttons = info.get("available_actions", {}).get("clickables", ())
    return _written(readable(str(observation), asked=first, buttons=buttons))


def _best_action(base: Any, info: Any) -> str | None:
    turn = base.optimal_turn(base.state, info["turns_left"], info["actions_left"])
    if turn is None or base.separator is None:
        return turn
    return str(turn.split(base.separator)[0].strip())


def _side_by_side(frames: list[Any]) -> Image.Image:
    height, width = frames[0].shape[:2]
    picture = Image.new("RGB", (len(frames) * (width + 16) - 16, height), "white")
    for number, frame in enumerate(frames):
        picture.paste(Image.fromarray(frame), (number * (width + 16), 0))
    return picture


def _written(text: str, most: int = 26) -> Image.Image:
    """Return the beginning of a text as a picture."""
    lines = text.splitlines()
    lines = [*lines[:most], "..."] if len(lines) > most else lines
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans Mono"), FONT_SIZE)
    picture = Image.new("RGB", (840, (len(lines) + 2) * (FONT_SIZE + 4)), "white")
    ImageDraw.Draw(picture).multiline_text((16, FONT_SIZE), "\n".join(lines), fill="black", font=font, spacing=4)
    return picture


def main() -> None:
    """Write all pages and pictures."""
    pyplot.switch_backend("agg")
    (DOCS / "environments").mkdir(exist_ok=True)
    for name in PAGES:
        (DOCS / "environments" / f"{name}.md").write_text(page_text(name), encoding="utf-8")
        draw(name).quantize(64).save(DOCS / "images" / f"env_{name}.png", optimize=True)
    print(f"{len(PAGES)} pages, tsr_gym {tsr_gym.__version__}")


if __name__ == "__main__":
    main()
