"""The shop that environments read: products, goals, search and rewards, shared by all clones and never changed."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from tsr_gym_envs.webshop.actions import ShopAction, parse, parse_kindly
from tsr_gym_envs.webshop.catalogue.goals import Goals, make_goals
from tsr_gym_envs.webshop.catalogue.nouns import open_nouns
from tsr_gym_envs.webshop.catalogue.opening import open_catalogue
from tsr_gym_envs.webshop.catalogue.product import Goal, Product
from tsr_gym_envs.webshop.catalogue.store import Catalogue
from tsr_gym_envs.webshop.pages.layout import Layout, Page, lay_out
from tsr_gym_envs.webshop.pages.text import MODES, Text
from tsr_gym_envs.webshop.repairs import Repairs
from tsr_gym_envs.webshop.reward import NounFn, score_purchase
from tsr_gym_envs.webshop.search.engine import open_index
from tsr_gym_envs.webshop.settings import WebShopSettings
from tsr_gym_envs.webshop.state import ShopState

# How many products a query finds at most, and how many of them a page shows.
NUM_RESULTS, PAGE_SIZE = 50, 10
# Remembered pages, texts of pages, and purchases: a few kilobytes each.
_REMEMBERED = 2048
# Queries that begin with one of these words are commands unless `plain_queries` is repaired.
_COMMANDS = ("<r>", "<a>", "<c>", "<q>")


class Search(Protocol):
    """What the shop asks of a search engine."""

    def rows(self, query: str, k: int = 50) -> tuple[int, ...]:
        """Return the catalogue rows of the best products for a query, best first."""


class Shop:
    """A catalogue with goals, a search engine and rewards; pure functions of states, remembered.

    Args:
        catalogue: The products.
        goals: What shoppers are asked for.
        engine: The search.
        repairs: Which defects of the original are repaired.
        noun_fn: The nouns of a title.
        noun_source: Where they come from.
        show_attrs: Whether products have a sub page of attributes.
        parse: How an agent's text is read.
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
        self.layout = lru_cache(_REMEMBERED)(self._lay_out)
        self.text = lru_cache(_REMEMBERED)(self._text)
        self._score = lru_cache(_REMEMBERED)(self._score_purchase)

    def goal(self, state: ShopState) -> Goal:
        """Return what is wanted."""
        return self.goals.goal(state.goal)

    def product(self, row: int) -> Product:
        """Return the product of a catalogue row."""
        return self.catalogue.product(row)

    def command(self, keywords: tuple[str, ...]) -> str | None:
        """Return which command of the original a query is; None for a plain one."""
        is_command = not self.repairs.plain_queries and keywords and keywords[0] in _COMMANDS
        return keywords[0] if is_command else None

    def results(self, state: ShopState) -> tuple[int, ...]:
        """Return the rows of all products that a state's query finds, best first.

        Where the original fails on a command, nothing is found.
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
    """Return the shop that settings stand for.

    Args:
        settings: The settings.
        noun_fn: The nouns of a title; None finds the best source there is.

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
