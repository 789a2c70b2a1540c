"""OpenSearchRetriever: Lucene's BM25 for corpora beyond one machine, with the scores that one Lucene index would give.

Tested against answers written from OpenSearch's API documentation, not against a server; that the analyser named here
is Anserini's is tested on Lucene itself.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

from tsr_gym.errors import ConfigError, InvalidCorpus, RetrievalFailed, TsrGymError
from tsr_gym.optional import require
from tsr_gym_envs.lucene_bm25 import analyse
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.retrieval_qa.corpus import NEWS_EVERY, Corpus, Progress, row_of, split_contents

# The steps of Anserini's default analyser by their names in OpenSearch.
TOKENIZER = "standard"
FILTERS = {
    "possessive": {"type": "stemmer", "language": "possessive_english"},
    "lower": {"type": "lowercase"},
    "stop_words": {"type": "stop", "stopwords": "_english_"},
    "porter": {"type": "porter_stem"},
}
ANALYSER = "anserini"
SIMILARITY = "lucene"
# Our mark in the index: what it was made of and whether it is complete.
MARK = "tsr_gym"
# OpenSearch refuses queries of more terms (indices.query.bool.max_clause_count) and longer lists of results
# (index.max_result_window).
MAX_TERMS = 1024
MAX_K = 10_000


class OpenSearchRetriever:
    """Ask an OpenSearch index that `index_corpus` filled.

    Term and document counts are gathered over all shards before anything is scored (``dfs_query_then_fetch``), so
    scores do not depend on how the passages are spread. Equal ones are ordered by the passages' ids, as
    Anserini orders them; its rounding to four decimals is not imitated.

    Args:
        where: The index.
        max_batch: Most queries in a request.

    Raises:
        InvalidCorpus: There is no such index, it is not ours, or it is incomplete.
        RetrievalFailed: The cluster does not answer.
        MissingExtra: opensearch-py is not installed.
    """

    def __init__(self, where: "Address", *, max_batch: int = 64) -> None:
        self._where, self._max_batch = where, max_batch
        client = connect(self._where)
        self._client = os.getpid(), client
        mark = _mark_of(client, self._where)
        if mark is None or not mark["complete"]:
            raise InvalidCorpus(f"{self._where}: wanted an index that was filled to its end; fill it with index_corpus")
        legacy = _multiplies_scores(client, self._where)
        if legacy != mark["legacy"]:
            raise InvalidCorpus(f"{self._where}: made under another generation of OpenSearch; fill it again")
        # Before OpenSearch 3, BM25 was Lucene's times k1 + 1.
        self._scale = 1 / (1 + mark["k1"]) if legacy else 1.0
        self.digest = blake2b(f"{mark['digest']} {mark['k1']} {mark['b']}".encode(), digest_size=16).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(OpenSearchRetriever, max_batch=self._max_batch), (self._where,)

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the best `k` passages of each query, best first.

        Raises:
            RetrievalFailed: The cluster did not answer, or only some of its shards did.
        """
        if k > MAX_K:
            raise ConfigError(f"wanted at most {MAX_K} passages a query, got {k}")
        if self._client[0] != os.getpid():
            # A client that came through a fork shares its sockets with the parent.
            self._client = os.getpid(), connect(self._where)
        passages: list[list[Passage]] = []
        for start in range(0, len(queries), self._max_batch):
            asked = [line for query in queries[start : start + self._max_batch] for line in ({}, search_body(query, k))]
            with _failing_clearly(self._where):
                response = self._client[1].msearch(
                    body=asked, index=self._where.index, params={"search_type": "dfs_query_then_fetch"}
                )
                passages += [
                    [passage._replace(score=passage.score * self._scale) for passage in hits]
                    for hits in read_answers(response, len(asked) // 2)
                ]
        return passages


@dataclass(frozen=True, slots=True)
class Address:
    """Where an index is, and how it is asked.

    Attributes:
        url: Address of the cluster.
        index: Name of the index.
        timeout_s: Most seconds for one try.
        max_retries: Further tries after no answer, or a status that may pass, such as 503.
        options: Further settings of `opensearchpy.OpenSearch`, such as ``http_auth`` and ``ca_certs``.
    """

    url: str
    index: str
    timeout_s: float = 30.0
    max_retries: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.url}/{self.index}"


def index_corpus(
    corpus: Corpus,
    where: Address,
    *,
    k1: float = 0.9,
    b: float = 0.4,
    shards: int = 1,
    replicas: int = 0,
    progress: Progress | None = None,
) -> None:
    """Fill an OpenSearch index with a corpus.

    An index of ours that was left incomplete is deleted and filled anew; nothing else is ever deleted.

    Args:
        corpus: The passages.
        where: The index; it must not exist.
        k1: Of BM25.
        b: Of BM25.
        shards: Parts that the index is spread over.
        replicas: Copies of each part.
        progress: Called with a stage, how much of it is done, and how much there is, now and then.

    Raises:
        ConfigError: There is such an index already.
        RetrievalFailed: The cluster does not answer, or did not take every passage.
    """
    client = connect(where)
    with _failing_clearly(where):
        mark = {
            "digest": corpus.digest,
            "k1": k1,
            "b": b,
            "legacy": _multiplies_scores(client, where),
            "complete": False,
        }
        if client.indices.exists(index=where.index):
            before = _mark_of(client, where)
            if before is None or before["complete"]:
                raise ConfigError(f"{where}: exists; choose another name, or delete the index")
            client.indices.delete(index=where.index)
        client.indices.create(index=where.index, body=index_body(mark, shards, replicas))
        _send(client, where, corpus, progress)
        client.indices.refresh(index=where.index)
        taken = client.count(index=where.index)["count"]
        if taken != len(corpus):
            raise RetrievalFailed(f"{where}: took {taken} of {len(corpus)} passages; run it again")
        client.indices.put_settings(index=where.index, body={"index": {"refresh_interval": None}})
        client.indices.put_mapping(index=where.index, body={"_meta": {MARK: mark | {"complete": True}}})


def index_body(mark: Mapping[str, Any], shards: int, replicas: int) -> dict[str, Any]:
    """Return the settings and mappings under which scores equal those of Lucene behind Anserini."""
    return {
        "settings": {
            "index": {
                "number_of_shards": shards,
                "number_of_replicas": replicas,
                "refresh_interval": "-1",
                "similarity": {SIMILARITY: {"type": "BM25", "k1": mark["k1"], "b": mark["b"]}},
            },
            "analysis": {
                "filter": FILTERS,
                "analyzer": {ANALYSER: {"type": "custom", "tokenizer": TOKENIZER, "filter": list(FILTERS)}},
            },
        },
        "mappings": {
            "_meta": {MARK: dict(mark)},
            "dynamic": False,
            "properties": {
                "id": {"type": "keyword"},
                "contents": {
                    "type": "text",
                    "analyzer": ANALYSER,
                    "similarity": SIMILARITY,
                    # Positions would only serve phrases.
                    "index_options": "freqs",
                },
            },
        },
    }


def search_body(query: str, k: int) -> dict[str, Any]:
    """Return the search for a query's best `k` passages."""
    return {
        "size": k,
        "query": {"match": {"contents": {"query": shorten(query)}}},
        "sort": [{"_score": "desc"}, {"id": "asc"}],
        "_source": ["id", "contents"],
        "track_total_hits": False,
    }


def shorten(query: str, max_terms: int = MAX_TERMS) -> str:
    """Return as many words of a query, from its beginning, as OpenSearch takes."""
    query = query.encode(errors="replace").decode()
    if len(query) <= max_terms:
        return query
    left, kept = max_terms, []
    for word in query.split():
        left -= len(analyse(word))
        if left < 0:
            break
        kept.append(word)
    return " ".join(kept)


def read_answers(response: Any, num_queries: int) -> list[list[Passage]]:
    """Return the passages in the answer to ``_msearch``, scored as they came.

    Raises:
        ValueError: An answer is missing, an error, late, or from some shards only.
    """
    answers = response["responses"]
    if len(answers) != num_queries:
        raise ValueError(f"wanted {num_queries} answers, got {len(answers)}")
    for answer in answers:
        if "error" in answer or answer["timed_out"] or answer["_shards"]["failed"]:
            raise ValueError(f"wanted an answer from all shards, got {str(answer)[:300]}")
    return [[_passage(hit) for hit in answer["hits"]["hits"]] for answer in answers]


def _passage(hit: Mapping[str, Any]) -> Passage:
    row = row_of(hit["_source"])
    return Passage(row.id, *split_contents(row.contents), float(hit["_score"]))


def connect(where: Address) -> Any:
    """Return a client.

    Raises:
        MissingExtra: opensearch-py is not installed.
    """
    require("opensearchpy", "opensearch")
    import opensearchpy

    settings: dict[str, Any] = {
        "timeout": where.timeout_s,
        "max_retries": where.max_retries,
        "retry_on_timeout": True,
        "retry_on_status": (429, 502, 503, 504),
    }
    return opensearchpy.OpenSearch([where.url], **(settings | dict(where.options)))


@contextmanager
def _failing_clearly(where: Address) -> Iterator[None]:
    import opensearchpy

    try:
        yield
    except (opensearchpy.exceptions.OpenSearchException, LookupError, TypeError, ValueError) as error:
        if isinstance(error, TsrGymError):
            raise
        raise RetrievalFailed(f"{where}: {type(error).__name__}: {error}") from error


def _send(client: Any, where: Address, corpus: Corpus, progress: Progress | None) -> None:
    from opensearchpy.helpers import streaming_bulk

    actions = (
        {"_index": where.index, "_id": str(number), "_source": row._asdict()}
        for number, row in enumerate(corpus.rows())
    )
    for done, _ in enumerate(streaming_bulk(client, actions, max_chunk_bytes=8 * 2**20, max_retries=5), 1):
        if progress and done % NEWS_EVERY == 0:
            progress("indexing", done, len(corpus))


def _mark_of(client: Any, where: Address) -> dict[str, Any] | None:
    """Return our mark in an index, None where there is no such index or it is not ours."""
    with _failing_clearly(where):
        if not client.indices.exists(index=where.index):
            return None
        # The answer is keyed by the index's own name, which an alias hides.
        (about,) = client.indices.get_mapping(index=where.index).values()
        mark = about["mappings"].get("_meta", {}).get(MARK)
        return None if mark is None else dict(mark)


def _multiplies_scores(client: Any, where: Address) -> bool:
    """Whether BM25 is still multiplied by k1 + 1, as before OpenSearch 3 and in Elasticsearch."""
    with _failing_clearly(where):
        version = client.info()["version"]
        return version.get("distribution") != "opensearch" or int(version["number"].partition(".")[0]) < 3
