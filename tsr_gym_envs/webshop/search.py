"""The shop's search: the best products for a query, ranked by BM25 as Lucene ranks them or by Lucene itself."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tsr_gym import ConfigError, InvalidCatalogue, InvalidCorpus, RetrievalFailed
from tsr_gym.files import in_place_of, locked, remove_leftovers
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.lucene_java import java, lucene_searcher
from tsr_gym_envs.webshop.catalogue.opening import LOCK, open_catalogue
from tsr_gym_envs.webshop.catalogue.product import document_of
from tsr_gym_envs.webshop.catalogue.store import INDEX, Catalogue

ENGINES = ("lucene", "pyserini")
# The original requests this number of products for every page of results.
NUM_RESULTS = 50
# Number of cached queries, and the longest one in characters; longer queries are ranked each time.
_REMEMBERED, _MAX_REMEMBERED = 4096, 1000

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
        self._rows = lru_cache(maxsize=_REMEMBERED)(self._rank_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_index, (self._catalogue, self.engine)

    def search(self, query: str, k: int = NUM_RESULTS) -> list[tuple[str, float]]:
        """Return the ids and scores of the best products, best first; empty if the index has no word of the query."""
        return [(asin, score) for asin, score, _ in self._rank(query, k)]

    def rows(self, query: str, k: int = NUM_RESULTS) -> tuple[int, ...]:
        """Return the catalogue rows of the best products, best first; results of earlier queries are cached."""
        return self._rows(query, k) if len(query) <= _MAX_REMEMBERED else self._rank_rows(query, k)

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
        from tsr_gym_envs.webshop.search import open_pyserini

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
