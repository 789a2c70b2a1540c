"""The shop that environments read, shared by all clones and never changed, and the start of an episode in it."""

import operator
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tsr_gym import ConfigError
from tsr_gym.seeds import derive_seed
from tsr_gym_envs.webshop.catalogue.goals import Goals, make_goals
from tsr_gym_envs.webshop.catalogue.nouns import open_nouns
from tsr_gym_envs.webshop.catalogue.opening import open_catalogue
from tsr_gym_envs.webshop.catalogue.original_random import Dice, draw_name, generator_of
from tsr_gym_envs.webshop.catalogue.product import Goal, Product
from tsr_gym_envs.webshop.catalogue.store import Catalogue
from tsr_gym_envs.webshop.pages import MODES, Layout, Page, Text, lay_out
from tsr_gym_envs.webshop.repairs import Repairs
from tsr_gym_envs.webshop.reward import NounFn, score_purchase
from tsr_gym_envs.webshop.search import open_index
from tsr_gym_envs.webshop.settings import WebShopSettings
from tsr_gym_envs.webshop.state import ShopAction, ShopState, parse, parse_kindly

# Most products that a query finds, and products per page.
NUM_RESULTS, PAGE_SIZE = 50, 10
# Number of cached pages, texts of pages, and purchases, of a few kilobytes each.
_REMEMBERED = 2048
# Queries that begin with one of these words are commands unless `plain_queries` is repaired.
_COMMANDS = ("<r>", "<a>", "<c>", "<q>")


class Search(Protocol):
    """The interface of a search engine."""

    def rows(self, query: str, k: int = 50) -> tuple[int, ...]:
        """Return the catalogue rows of the best products for a query, best first."""


class Shop:
    """A catalogue with goals, a search engine and rewards; pure functions of states, cached.

    Args:
        catalogue: The products.
        goals: The goals of shoppers.
        engine: The search.
        repairs: The repaired defects of the original.
        noun_fn: A function from a title to its nouns.
        noun_source: The name of its source.
        show_attrs: Whether products have a sub page of attributes.
        parse: The parser of an agent's text.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        goals: Goals,
        engine: Search,
        repairs: Repairs,
        *,
        noun_fn: NounFn,
        noun_source: str,
        show_attrs: bool = False,
        parse: Callable[[str], ShopAction] = parse_kindly,
    ) -> None:
        self.catalogue = catalogue
        self.goals = goals
        self.engine = engine
        self.repairs = repairs
        self.noun_fn = noun_fn
        self.noun_source = noun_source
        self.show_attrs = show_attrs
        self.parse = parse
        # Caches belong to the shop and not to the class, so that they are freed with it.
        self.layout = lru_cache(_REMEMBERED)(self._lay_out)
        self.text = lru_cache(_REMEMBERED)(self._text)
        self._score = lru_cache(_REMEMBERED)(self._score_purchase)

    def goal(self, state: ShopState) -> Goal:
        """Return the goal of a state."""
        return self.goals.goal(state.goal)

    def product(self, row: int) -> Product:
        """Return the product of a catalogue row."""
        return self.catalogue.product(row)

    def command(self, keywords: tuple[str, ...]) -> str | None:
        """Return the original's command in a query; None for a plain query."""
        is_command = not self.repairs.plain_queries and keywords and keywords[0] in _COMMANDS
        return keywords[0] if is_command else None

    def results(self, state: ShopState) -> tuple[int, ...]:
        """Return the rows of all products that a state's query finds, best first.

        The result is empty for a command on which the original fails.
        """
        words = state.keywords
        command = self.command(words)
        if command is None:
            return self.engine.rows(" ".join(words), NUM_RESULTS)
        if command == "<c>":
            return self.catalogue.rows_with("category", words[1].strip()) if len(words) > 1 else ()
        if command == "<q>":
            return self.catalogue.rows_with("query", " ".join(words[1:]).strip())
        return state.drawn

    def purchase(self, state: ShopState) -> dict[str, Any]:
        """Return the reward and its parts for buying a state's product with the chosen options."""
        return dict(self._score(state.goal, state.row, state.options))

    def _score_purchase(self, goal: int, row: int, options: tuple[tuple[str, str], ...]) -> dict[str, Any]:
        return score_purchase(
            self.goals[goal],
            self.product(row).as_original(),
            dict(options),
            self.goals.price(row),
            rules=self.repairs,
            noun_fn=self.noun_fn,
        )

    def _lay_out(self, page: Page) -> Layout:
        unique = self.repairs.symmetric_options
        return lay_out(page, self.product, self.parse, show_attrs=self.show_attrs, unique=unique)

    def _text(self, mode: str, page: Page) -> Text:
        return MODES[mode][0](self.layout(page).nodes)


def open_shop(settings: WebShopSettings, noun_fn: NounFn | None = None) -> Shop:
    """Return the shop that the settings describe.

    Args:
        settings: The settings.
        noun_fn: A function from a title to its nouns; None selects the best available source.

    Raises:
        InvalidCatalogue: The catalogue is missing or damaged.
        MissingExtra: A library is not installed.
    """
    where = None if settings.catalogue is None else Path(settings.catalogue)
    return _shop(
        open_catalogue(where, num_products=settings.num_products),
        settings.chosen_repairs,
        settings.human_goals,
        settings.catalogue_seed,
        settings.limit_goals,
        settings.min_options,
        settings.engine,
        settings.show_attrs,
        settings.is_original,
        noun_fn,
    )


@lru_cache(maxsize=8)
def _shop(
    catalogue: Catalogue,
    repairs: Repairs,
    human_goals: bool,
    seed: int,
    limit_goals: int | None,
    min_options: int,
    engine: str,
    show_attrs: bool,
    is_original: bool,
    noun_fn: NounFn | None,
) -> Shop:
    nouns, source = open_nouns(noun_fn, catalogue)
    return Shop(
        catalogue,
        make_goals(catalogue, repairs, human=human_goals, seed=seed, limit=limit_goals, min_options=min_options),
        open_index(catalogue, engine=engine),
        repairs,
        noun_fn=nouns,
        noun_source=source,
        show_attrs=show_attrs,
        parse=parse if is_original else parse_kindly,
    )


# Sessions that a state remembers: the original remembers all, which would make snapshots grow without bound.
MAX_KNOWN = 256


class Stream(NamedTuple):
    """The state that the original carries from one episode to the next.

    Attributes:
        dice: State of its generator.
        known: (session, goal) pairs, the latest last.
    """

    dice: Dice
    known: tuple[tuple[str, int], ...] = ()


def stream_from(seed: int) -> Stream:
    """Return the random numbers of a seed, without sessions."""
    return Stream(generator_of(int(seed)).getstate())


def begin_as_original(goals: Goals, settings: WebShopSettings, options: dict[str, Any]) -> ShopState:
    """Return the start of an episode, drawn as in the original.

    Args:
        goals: All goals.
        settings: Split and prefix of session keys.
        options: ``stream``, and optionally ``goal`` or ``session``.
    """
    stream: Stream = options["stream"]
    goal_of, dice = dict(stream.known), stream.dice
    asked = _asked(options)
    number = _number(goals, asked) if isinstance(asked, int) else None
    key = f"{settings.session_prefix}{asked}"
    # The original draws a goal only for a new session; a random number is consumed in exactly these cases.
    if asked is None or (number is None and key not in goal_of):
        generator = generator_of(dice)
        if asked is None:
            key = settings.session_prefix + draw_name(generator)
        goal = goal_of[key] if key in goal_of else goals.draw(generator.random(), settings.split)
        dice = generator.getstate()
    else:
        goal = number if number is not None and ("goal" in options or key not in goal_of) else goal_of[key]
    # The session moves to the end, so that the oldest unused one is dropped.
    goal_of.pop(key, None)
    latest = (*goal_of.items(), (key, goal))[-MAX_KNOWN:]
    return ShopState(goal, key, dice=dice, known=latest)


def begin(goals: Goals, settings: WebShopSettings, options: dict[str, Any], rng: np.random.Generator) -> ShopState:
    """Return the start of an episode; a session key that is not a number always has the same goal.

    Args:
        goals: All goals.
        settings: Split and prefix of session keys.
        options: Optionally ``goal`` or ``session``.
        rng: Draws the goal without either.
    """
    asked = _asked(options)
    if isinstance(asked, int):
        goal = _number(goals, asked)
    else:
        # A key is hashed to a number, so that it has the same goal in every process and after any other episodes.
        uniform = rng.random() if asked is None else derive_seed("webshop session", asked) / 2**63
        goal = goals.draw(uniform, settings.split)
    key = settings.session_prefix + str(goal if asked is None else asked)
    # Without this repair the query <r> draws products at random, which needs a generator in the state.
    is_drawing = not settings.chosen_repairs.plain_queries
    return ShopState(goal, key, dice=generator_of(int(rng.integers(2**63))).getstate() if is_drawing else None)


def _asked(options: dict[str, Any]) -> int | str | None:
    """Return the requested number of a goal or key of a session, None for neither."""
    if "goal" in options and "session" in options:
        raise ConfigError("wanted a goal or a session in the options of reset, got both")
    asked = options.get("goal", options.get("session"))
    if asked is None or isinstance(asked, str):
        if "goal" in options:
            raise ConfigError(f"wanted the number of a goal, got {asked!r}")
        return asked
    try:
        return operator.index(asked)
    except TypeError as error:
        raise ConfigError(f"wanted a number or the key of a session in the options of reset, got {asked!r}") from error


def _number(goals: Goals, number: int) -> int:
    if not -len(goals) <= number < len(goals):
        raise ConfigError(f"wanted the number of a goal from {-len(goals)} to {len(goals) - 1}, got {number}")
    return number % len(goals)
