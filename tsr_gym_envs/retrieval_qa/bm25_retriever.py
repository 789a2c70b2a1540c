"""BM25Retriever: the embedded default, Lucene's BM25 (k1 = 0.9, b = 0.4) over a corpus on this machine."""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from typing import Any

from tsr_gym.errors import InvalidCorpus
from tsr_gym.files import cached
from tsr_gym_envs.lucene_bm25 import BM25Index, Hit
from tsr_gym_envs.lucene_bm25.layout import VERSION
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.retrieval_qa.corpus import BM25, MANIFEST, open_corpus, write_index


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
        found = self._index.search(list(queries), k)
        return [[self._passage(hit) for hit in hits] for hits in found]

    def _passage(self, hit: Hit) -> Passage:
        passage = self._corpus.passage(hit.number, hit.score)
        if passage.id != hit.id:
            raise InvalidCorpus(
                f"{self._folder}: passage {hit.number} is {passage.id!r}, in the index {hit.id!r}; index it again"
            )
        return passage


def _indexed(corpus: Path) -> Path:
    """Return the cached index of a jsonl file; one that is damaged is made anew."""
    # An index of another version lies elsewhere.
    folder = cached(corpus, f"retrieval/indexes-{VERSION}", MANIFEST, partial(write_index, corpus, link=True))
    try:
        BM25Index.open(folder / BM25)
    except InvalidCorpus:
        rmtree(folder)
        return cached(corpus, f"retrieval/indexes-{VERSION}", MANIFEST, partial(write_index, corpus, link=True))
    return folder
