"""Lucene itself, through the Anserini jar of Pyserini and Java: the search that the original runs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tsr_gym import InvalidCatalogue, RetrievalFailed
from tsr_gym.files import in_place_of, locked, remove_leftovers
from tsr_gym_envs.lucene_java import java, lucene_searcher
from tsr_gym_envs.webshop.catalogue.importing import LOCK
from tsr_gym_envs.webshop.catalogue.product import document_of
from tsr_gym_envs.webshop.catalogue.store import Catalogue

LUCENE = "lucene"
# Anserini's defaults, which the original keeps.
K1, B = 0.9, 0.4


def open_pyserini(catalogue: Catalogue) -> Callable[[str, int], Sequence[tuple[str, float, int]]]:
    """Return Lucene's ranking of a catalogue; its index is built beside the store at first use.

    Raises:
        MissingExtra: Pyserini is not installed.
        ConfigError: There is no Java that runs it.
        InvalidCatalogue: Lucene did not take a product.
    """
    folder = catalogue.data / LUCENE
    if not folder.is_dir():
        with locked(catalogue.path / LOCK):
            if not folder.is_dir():
                _build(catalogue, folder)
    searcher = lucene_searcher(folder, K1, B)

    def rank(query: str, k: int) -> list[tuple[str, float, int]]:
        try:
            # Half a character is nothing that Java takes.
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
