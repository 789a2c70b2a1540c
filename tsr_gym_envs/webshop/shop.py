"""The shop that environments read, shared by all clones and never changed: its search, and the start of an episode.

The search ranks products for a query by BM25 as Lucene ranks them, or by Lucene itself.
"""

import json
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tsr_gym import ConfigError, InvalidCatalogue, InvalidCorpus, RetrievalFailed
from tsr_gym.files import in_place_of, locked, remove_leftovers
from tsr_gym.seeds import derive_seed
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.lucene_java import java, lucene_searcher
from tsr_gym_envs.webshop.catalogue.goals import Goals, make_goals
from tsr_gym_envs.webshop.catalogue.opening import LOCK, open_catalogue
from tsr_gym_envs.webshop.catalogue.original_random import Dice, draw_name, generator_of
from tsr_gym_envs.webshop.catalogue.product import Goal, Product, document_of
from tsr_gym_envs.webshop.catalogue.store import INDEX, Catalogue, open_nouns
from tsr_gym_envs.webshop.pages import MODES, Layout, Page, lay_out
from tsr_gym_envs.webshop.repairs import Repairs
from tsr_gym_envs.webshop.reward import NounFn, score_purchase
from tsr_gym_envs.webshop.settings import WebShopSettings
from tsr_gym_envs.webshop.state import ShopAction, ShopState, parse, parse_kindly

ENGINES = ("lucene", "pyserini")
# The original requests this number of products for every page of results.
NUM_RESULTS = 50
# Number of cached queries, and the longest one in characters; longer queries are ranked each time.
_MAX_QUERIES, _MAX_QUERY = 4096, 1000

# The id, score and row of the best products for a query, best first.
Ranked = Sequence[tuple[str, float, int]]


class SearchEngine:
    """A search over one catalogue.

    Args:
        catalogue: The catalogue.
        engine: A name of `ENGINES`.
        rank: The function that ranks the best products for a query.

    Attributes:
        engine: The name of the engine.
    """

    def __init__(self, catalogue: Catalogue, engine: str, rank: Callable[[str, int], Ranked]) -> None:
        self.engine = engine
        self._catalogue, self._rank = catalogue, rank
        self._rows = lru_cache(maxsize=_MAX_QUERIES)(self._rank_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_index, (self._catalogue, self.engine)

    def search(self, query: str, k: int = NUM_RESULTS) -> list[tuple[str, float]]:
        """Return the ids and scores of the best products, best first; empty if the index has no word of the query."""
        return [(asin, score) for asin, score, _ in self._rank(query, k)]

    def rows(self, query: str, k: int = NUM_RESULTS) -> tuple[int, ...]:
        """Return the catalogue rows of the best products, best first; results of earlier queries are cached."""
        return self._rows(query, k) if len(query) <= _MAX_QUERY else self._rank_rows(query, k)

    def _rank_rows(self, query: str, k: int) -> tuple[int, ...]:
        return tuple(row for _, _, row in self._rank(query, k))


def open_index(catalogue: Catalogue | str | Path | None, engine: str = "lucene") -> SearchEngine:
    """Return the search over a catalogue; a process opens it once.

    Args:
        catalogue: The catalogue, or an argument of `open_catalogue`.
        engine: ``"lucene"`` is this project's BM25, which ranks as Lucene does. ``"pyserini"`` is Lucene itself: it
            needs the extra of that name and Java, and builds its index on first use.

    Raises:
        ConfigError: The engine is unknown.
        InvalidCatalogue: The catalogue or its index is damaged.
        MissingExtra: Pyserini is not installed.
    """
    if engine not in ENGINES:
        raise ConfigError(f"wanted an engine of {ENGINES}, got {engine!r}")
    return _opened(catalogue if isinstance(catalogue, Catalogue) else open_catalogue(catalogue), engine)


@lru_cache(maxsize=16)
def _opened(catalogue: Catalogue, engine: str) -> SearchEngine:
    if engine == "pyserini":
        return SearchEngine(catalogue, engine, open_pyserini(catalogue))
    try:
        index = BM25Index.open(catalogue.data / INDEX)
    except InvalidCorpus as error:
        raise InvalidCatalogue(f"the search index of {catalogue.path} is damaged: {error}") from error

    def rank(query: str, k: int) -> Ranked:
        return [(hit.id, hit.score, hit.number) for hit in index.search([query], k)[0]]

    return SearchEngine(catalogue, engine, rank)


# The texts before the price limit and before the options in an instruction.
_LIMIT, _WISHES = ", and price lower than ", " with "
_OPENING = "find me "
_SIGNS = str.maketrans(dict.fromkeys("[]|\n\r", " "))


@lru_cache(maxsize=4096)
def suggest_queries(instruction: str) -> tuple[str, ...]:
    """Return an instruction without its price limit as a query, and the same up to its first "with".

    Brackets and bars are left out, because they have a meaning in actions.

    >>> suggest_queries("Find me soft socks with color: red, and price lower than 20.00 dollars")
    ('soft socks with color: red', 'soft socks')
    """
    text = " ".join(instruction.translate(_SIGNS).split())
    wishes = text.rpartition(_LIMIT)[0] or text
    whole = wishes[len(_OPENING) :] if wishes.lower().startswith(_OPENING) else wishes
    short = whole.partition(_WISHES)[0].strip(" ,")
    return tuple(dict.fromkeys(query for query in (whole, short) if query)) or ("product",)


LUCENE = "lucene"
# Anserini's defaults, which the original keeps.
K1, B = 0.9, 0.4


def open_pyserini(catalogue: Catalogue) -> Callable[[str, int], Sequence[tuple[str, float, int]]]:
    """Return Lucene's ranking of a catalogue; its index is built next to the store on first use.

    Raises:
        MissingExtra: Pyserini is not installed.
        ConfigError: No suitable Java is installed.
        InvalidCatalogue: Lucene rejected a product.
    """
    folder = catalogue.data / LUCENE
    if not folder.is_dir():
        with locked(catalogue.path / LOCK):
            if not folder.is_dir():
                _build(catalogue, folder)
    searcher = lucene_searcher(folder, K1, B)

    def rank(query: str, k: int) -> list[tuple[str, float, int]]:
        try:
            # Java rejects half a surrogate pair.
            hits = searcher.search(query.encode(errors="replace").decode(), k)
        except java().exceptions as error:
            raise RetrievalFailed(f"Lucene failed on {query[:200]!r}: {error}") from error
        return [(str(hit.docid), float(hit.score), _row_of(catalogue, str(hit.docid))) for hit in hits]

    return rank


def _row_of(catalogue: Catalogue, asin: str) -> int:
    row = catalogue.row_of(asin)
    assert row is not None
    return row


def _build(catalogue: Catalogue, folder: Path) -> None:
    remove_leftovers(folder)
    with in_place_of(folder) as draft:
        indexer = java().named("io.anserini.index.SimpleIndexer")(str(draft))
        for row in range(len(catalogue)):
            product = catalogue.product(row)
            document = {"id": product.asin, "contents": document_of(product)}
            if not indexer.addRawDocument(json.dumps(document)):
                raise InvalidCatalogue(f"Lucene did not take product {product.asin}")
        indexer.close()


# Products per page.
PAGE_SIZE = 10
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
        self.text = lru_cache(_REMEMBERED)(lambda mode, page: MODES[mode][0](self.layout(page).nodes))
        self._score = lru_cache(_REMEMBERED)(self._score_purchase)

    def __reduce__(self) -> tuple[Any, ...]:
        # Nouns that the caller did not give are looked up again, because models and caches have no pickles.
        given = self.noun_fn if self.noun_source == "injected" else None
        parts = (self.catalogue, self.goals, self.engine, self.repairs, given, self.noun_source)
        return _reopened, (*parts, self.show_attrs, self.parse)

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
        settings.price_seed,
        settings.limit_goals,
        settings.min_options,
        settings.engine,
        settings.show_attrs,
        settings.is_original,
        noun_fn,
    )


@lru_cache(maxsize=8)
def _reopened(
    catalogue: Catalogue,
    goals: Goals,
    engine: Search,
    repairs: Repairs,
    noun_fn: NounFn | None,
    noun_source: str,
    show_attrs: bool,
    parse: Callable[[str], ShopAction],
) -> Shop:
    """Return the shop that a copy or a pickle describes; a process opens it once.

    Raises:
        ConfigError: The nouns come from another source here, so rewards would differ.
    """
    nouns, source = open_nouns(noun_fn, catalogue)
    if source != noun_source:
        raise ConfigError(f"wanted the nouns of {noun_source!r}, got {source!r}: install the same spaCy model here")
    return Shop(
        catalogue, goals, engine, repairs, noun_fn=nouns, noun_source=source, show_attrs=show_attrs, parse=parse
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
