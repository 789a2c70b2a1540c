"""Retrievers by BM25 on this machine: the embedded default with Lucene's scores, and Lucene itself in Java."""

import json
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from tsr_gym.errors import InvalidCorpus, RetrievalFailed
from tsr_gym.files import cached, write_whole
from tsr_gym_envs.lucene_java import java, lucene_searcher
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.retrieval_qa.corpus import (
    BM25,
    MANIFEST,
    NEWS_EVERY,
    Corpus,
    Progress,
    open_corpus,
    parse_row,
    split_contents,
    write_index,
)

if TYPE_CHECKING:
    # The index is compiled by numba, which takes a third of a second to import. Listing the worlds does not need it.
    from tsr_gym_envs.lucene_bm25 import Hit


class BM25Retriever:
    """Find passages by BM25, with the analysis and the scores of Lucene as Pyserini sets it up.

    Index and passages are memory-mapped: opening is cheap, and processes share the pages.

    Args:
        path: An index folder, or a jsonl file of passages, which is indexed at first use into
            ``cache_home()/retrieval``; the file must then stay where it is.
        verify: Read corpus and index whole and compare them with their digests, also where they were found sound and
            have not changed since.

    Raises:
        InvalidCorpus: The corpus or its index is missing, malformed or damaged.
    """

    def __init__(self, path: str | Path, *, verify: bool = False) -> None:
        from tsr_gym_envs.lucene_bm25 import BM25Index

        path = Path(path)
        if path.is_file():
            path = _indexed(path)
        self._folder = path
        self._corpus = open_corpus(path, verify=verify)
        self._index = BM25Index.open(path / BM25, verify=verify)
        if len(self._index) != len(self._corpus):
            raise InvalidCorpus(
                f"{path}: {len(self._corpus)} passages but an index of {len(self._index)}; index the corpus again"
            )
        self.digest = blake2b(f"{self._corpus.digest} {self._index.digest}".encode(), digest_size=16).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return BM25Retriever, (self._folder,)

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the best `k` passages of each query, best first.

        Raises:
            InvalidCorpus: The files were damaged after they were opened.
        """
        return [[self._passage(hit) for hit in hits] for hits in self._index.search(list(queries), k)]

    def _passage(self, hit: "Hit") -> Passage:
        passage = self._corpus.passage(hit.number, hit.score)
        if passage.id != hit.id:
            raise InvalidCorpus(
                f"{self._folder}: passage {hit.number} is {passage.id!r}, in the index {hit.id!r}; index it again"
            )
        return passage


def _indexed(corpus: Path) -> Path:
    """Return the cached index of a jsonl file; one that is damaged is made anew."""
    from tsr_gym_envs.lucene_bm25 import BM25Index
    from tsr_gym_envs.lucene_bm25.layout import VERSION

    # An index of another version lies elsewhere.
    folder = cached(corpus, f"retrieval/indexes-{VERSION}", MANIFEST, partial(write_index, corpus, link=True))
    try:
        BM25Index.open(folder / BM25)
    except InvalidCorpus:
        rmtree(folder)
        return cached(corpus, f"retrieval/indexes-{VERSION}", MANIFEST, partial(write_index, corpus, link=True))
    return folder


MARKER = "segments_1"


class PyseriniRetriever:
    """Find passages by BM25 in a Lucene index, as Pyserini's ``LuceneSearcher`` does.

    The digest names the index by Lucene's own files: an index that is built again counts as another one. A Java machine
    does not live through a fork; processes open a retriever each.

    Args:
        index: Folder of a Lucene index: a prebuilt one that was downloaded, or what `build_lucene_index` wrote.
        corpus: The passages as jsonl file or index folder; None where the Lucene index stores them.
        k1: Of BM25.
        b: Of BM25.

    Raises:
        InvalidCorpus: There is no Lucene index, or one of a Lucene that this Anserini does not read.
        MissingExtra: pyjnius or Pyserini is not installed.
        ConfigError: There is no Java, or one that is too old for this Pyserini.
    """

    def __init__(self, index: str | Path, corpus: str | Path | None = None, *, k1: float = 0.9, b: float = 0.4) -> None:
        self._again = partial(PyseriniRetriever, index, corpus, k1=k1, b=b)
        self._corpus = None if corpus is None else open_corpus(corpus)
        self._searcher = lucene_searcher(Path(index), k1, b)
        files = sorted((file.name, file.stat().st_size) for file in Path(index).iterdir() if file.is_file())
        # Lucene writes a random id into the segments file at each commit.
        commit = max(Path(index).glob("segments_*"), key=lambda file: int(file.name.partition("_")[2], 36))
        parts = [files, commit.read_bytes().hex(), k1, b, self._corpus.digest if self._corpus else None]
        self.digest = blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the best `k` passages of each query, best first.

        Raises:
            RetrievalFailed: Lucene failed, or holds a passage that the corpus does not.
        """
        return [self._retrieve(query, k) for query in queries]

    def _retrieve(self, query: str, k: int) -> list[Passage]:
        # A query can hold half a surrogate pair, which Java refuses.
        whole = query.encode(errors="replace").decode()
        try:
            hits = self._searcher.search(whole, k)
        except java().exceptions as error:
            raise RetrievalFailed(f"Lucene failed on {whole[:200]!r}: {error}") from error
        return [self._passage(str(hit.docid), float(hit.score)) for hit in hits]

    def _passage(self, name: str, score: float) -> Passage:
        if self._corpus is not None:
            number = self._corpus.number_of(name)
            if number is None:
                raise RetrievalFailed(f"the Lucene index holds {name!r}, {self._corpus.text} does not; name its corpus")
            return self._corpus.passage(number, score)
        raw = self._searcher.doc_raw(name)
        if raw is None:
            raise RetrievalFailed(f"the Lucene index stores no text of {name!r}; name the corpus that it was made of")
        row = parse_row(str(raw).encode(), f"passage {name!r} of the Lucene index")
        return Passage(row.id, *split_contents(row.contents), score)


def build_lucene_index(corpus: Corpus, out: str | Path, progress: Progress | None = None) -> Path:
    """Index a corpus by Lucene, as ``python -m pyserini.index.lucene`` does with one thread, and return the folder.

    The index stores no text; `PyseriniRetriever` reads it from the corpus.

    Raises:
        RetrievalFailed: Lucene did not take a passage.
    """

    def write(folder: Path) -> None:
        indexer = java().named("io.anserini.index.SimpleIndexer")(str(folder))
        for number, row in enumerate(corpus.rows()):
            # Anserini leaves out what is empty, as Lucene would in its counts.
            if not indexer.addRawDocument(json.dumps(row._asdict())) and row.contents.strip():
                raise RetrievalFailed(f"Lucene did not take passage {number}, {row.id!r}")
            if progress and number % NEWS_EVERY == 0:
                progress("indexing", number, len(corpus))
        indexer.close()

    write_whole(Path(out), MARKER, write)
    return Path(out)
