"""The OpenSearch engine against a stand-in that answers in the shapes of OpenSearch's API documentation.

No server could be installed where this was written. The stand-in scores by the settings that an index was created with;
that the analyser which they name is Anserini's is tested on Lucene itself, in with_lucene.py.
"""

import json
import math
import pickle
from contextlib import contextmanager

import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import ROWS, scripted, write_rows
from tsr_gym import ConfigError, InvalidCorpus, MissingExtra, RetrievalFailed
from tsr_gym_envs.lucene_bm25 import analyse
from tsr_gym_envs.retrieval_qa import opensearch_retriever
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.corpus import open_corpus
from tsr_gym_envs.retrieval_qa.opensearch_retriever import (
    Address,
    OpenSearchRetriever,
    index_corpus,
    search_body,
    shorten,
)

QUERIES = ["blue", "blue sea", "pines", "deep blue sea of coal", "the", "", "zebra"]


class StandIn:
    """An OpenSearch of one node.

    Args:
        version: The answer to ``GET /``.
        trouble: Given method and path, returns an answer to give instead, or None.
    """

    def __init__(self, number="3.1.0", distribution="opensearch", trouble=lambda method, path: None):
        self.version = {"number": number, **({"distribution": distribution} if distribution else {})}
        self.multiplies = distribution != "opensearch" or number < "3"
        self.trouble = trouble
        self.indices = {}

    def __call__(self, method, path, body):
        path, _, query = path.partition("?")
        told = self.trouble(method, path)
        if told is None:
            told = self.answer(method, path.strip("/").split("/"), query, body)
        status, reply = told
        content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        return status, {"content-type": "application/json; charset=UTF-8"}, content

    def answer(self, method, parts, query, body):
        match method, parts:
            case "GET", [""]:
                return 200, {"name": "node-1", "cluster_name": "stand-in", "version": self.version}
            case "POST", ["_bulk"]:
                return self.bulk(body.splitlines())
            case "HEAD", [index]:
                return (200 if index in self.indices else 404), b""
            case "PUT", [index]:
                self.indices[index] = {**json.loads(body), "documents": {}}
                return 200, {"acknowledged": True, "shards_acknowledged": True, "index": index}
            case "DELETE", [index]:
                del self.indices[index]
                return 200, {"acknowledged": True}
            case "GET", [index, "_mapping"]:
                return 200, {index: {"mappings": self.indices[index]["mappings"]}}
            case "PUT", [index, "_mapping"]:
                self.indices[index]["mappings"] |= json.loads(body)
                return 200, {"acknowledged": True}
            case "PUT", [index, "_settings"]:
                self.indices[index]["settings"]["index"] |= json.loads(body)["index"]
                return 200, {"acknowledged": True}
            case "POST", [_, "_refresh"]:
                return 200, {"_shards": {"total": 1, "successful": 1, "failed": 0}}
            case (("GET" | "POST"), [index, "_count"]):
                return 200, {"count": len(self.indices[index]["documents"]), "_shards": {"failed": 0}}
            case "POST", [index, "_msearch"]:
                assert "search_type=dfs_query_then_fetch" in query
                lines = [json.loads(line) for line in body.splitlines()]
                assert lines[::2] == [{}] * (len(lines) // 2)
                return 200, {"took": 1, "responses": [self.search(index, search) for search in lines[1::2]]}
        return 400, {"error": {"type": "illegal_argument_exception", "reason": f"{method} {parts}"}, "status": 400}

    def bulk(self, lines):
        items = []
        for action, source in zip(lines[::2], lines[1::2], strict=True):
            (kind, about), *more = json.loads(action).items()
            assert kind == "index"
            assert not more
            self.indices[about["_index"]]["documents"][about["_id"]] = json.loads(source)
            items.append({"index": {"_index": about["_index"], "_id": about["_id"], "status": 201}})
        return 200, {"took": 1, "errors": False, "items": items}

    def search(self, index, search):
        about = self.indices[index]
        contents = about["mappings"]["properties"]["contents"]
        similarity = about["settings"]["index"]["similarity"][contents["similarity"]]
        assert similarity["type"] == "BM25"
        k1, b = similarity["k1"], similarity["b"]
        # No text here is long enough for Lucene to round its length.
        texts = {key: analyse(document["contents"]) for key, document in about["documents"].items()}
        mean = sum(map(len, texts.values())) / len(texts)
        assert list(search["query"]) == ["match"]
        terms = analyse(search["query"]["match"]["contents"]["query"])
        hits = []
        for key, text in texts.items():
            score = 0.0
            for term in terms:
                holding = sum(term in other for other in texts.values())
                count = text.count(term)
                idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
                score += idf * count / (count + k1 * (1 - b + b * len(text) / mean))
            if score:
                hits.append({"_index": index, "_id": key, "_score": score * (1 + k1 if self.multiplies else 1)})
        assert search["sort"] == [{"_score": "desc"}, {"id": "asc"}]
        hits.sort(key=lambda hit: (-hit["_score"], about["documents"][hit["_id"]]["id"]))
        for hit in hits:
            hit["_source"] = {name: about["documents"][hit["_id"]][name] for name in search["_source"]}
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        found = {"max_score": None, "hits": hits[: search["size"]]}
        return {"took": 1, "timed_out": False, "_shards": shards, "hits": found, "status": 200}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def corpus(tmp_path):
    return open_corpus(write_rows(tmp_path / "corpus.jsonl"))


@contextmanager
def cluster(corpus=None, **about):
    """Run a stand-in, filled where there is a corpus; gives it and the address of the index."""
    stand_in = StandIn(**about)
    with scripted(stand_in) as (url, _):
        where = Address(url, "wiki", timeout_s=5, max_retries=0)
        if corpus is not None:
            index_corpus(corpus, where)
        yield stand_in, where


@pytest.mark.parametrize(
    "version",
    [{"number": "3.1.0"}, {"number": "2.19.1"}, {"number": "1.3.0"}, {"number": "8.15.0", "distribution": None}],
    ids=lambda version: version["number"],
)
def test_scores_are_lucenes_whatever_the_version_multiplies_them_by(corpus, version):
    with cluster(corpus, **version) as (_, where):
        found = OpenSearchRetriever(where).retrieve(QUERIES, 3)
    wanted = BM25Retriever(corpus.text).retrieve(QUERIES, 3)
    for mine, theirs in zip(found, wanted, strict=True):
        assert [passage[:3] for passage in mine] == [passage[:3] for passage in theirs]
        # Anserini rounds to four decimals.
        assert [p.score for p in mine] == pytest.approx([p.score for p in theirs], abs=6e-5)


def test_a_missing_server_or_client_is_an_error_and_digests_are_of_the_corpus(corpus, tmp_path, monkeypatch):
    with pytest.raises(RetrievalFailed, match="ConnectionError"):
        OpenSearchRetriever(Address("http://127.0.0.1:1", "wiki", max_retries=0))
    with cluster(corpus) as (_, where), cluster(open_corpus(write_rows(tmp_path / "b.jsonl", ROWS[:2]))) as (_, other):
        retriever, parts = OpenSearchRetriever(where), OpenSearchRetriever(where, max_batch=2)
        again = pickle.loads(pickle.dumps(retriever))
        assert again.digest == retriever.digest != OpenSearchRetriever(other).digest
        assert again.retrieve(["blue"], 1) == retriever.retrieve(["blue"], 1)
        # Queries are sent in parts and come back in order.
        assert parts.retrieve(QUERIES, 2) == retriever.retrieve(QUERIES, 2)
        assert retriever.retrieve([], 3) == []
        with pytest.raises(ConfigError, match="at most 10000"):
            retriever.retrieve(["blue"], 10_001)
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"tsr-gym\[opensearch\]"):
        OpenSearchRetriever(Address("http://127.0.0.1:1", "wiki"))


def test_the_index_is_created_as_anserini_analyses_and_scores(corpus):
    with cluster(corpus) as (stand_in, _):
        index = stand_in.indices["wiki"]
    contents = index["mappings"]["properties"]["contents"]
    analysis = index["settings"]["analysis"]
    analyser = analysis["analyzer"][contents["analyzer"]]
    assert (analyser["type"], analyser["tokenizer"]) == ("custom", "standard")
    assert [analysis["filter"][name] for name in analyser["filter"]] == [
        {"type": "stemmer", "language": "possessive_english"},
        {"type": "lowercase"},
        {"type": "stop", "stopwords": "_english_"},
        {"type": "porter_stem"},
    ]
    assert index["settings"]["index"]["similarity"][contents["similarity"]] == {"type": "BM25", "k1": 0.9, "b": 0.4}
    assert index["settings"]["index"]["refresh_interval"] is None
    assert [index["documents"][str(number)] for number in range(4)] == [dict(row) for row in ROWS]


def test_an_index_that_was_left_incomplete_is_refused_and_filled_anew(corpus):
    failing = {"bulk": True}

    def trouble(method, path):
        return (403, {"error": "disk full", "status": 403}) if path == "/_bulk" and failing["bulk"] else None

    with cluster(trouble=trouble) as (stand_in, where):
        with pytest.raises(InvalidCorpus, match="filled to its end"):
            OpenSearchRetriever(where)
        with pytest.raises(RetrievalFailed, match="disk full"):
            index_corpus(corpus, where)
        with pytest.raises(InvalidCorpus, match="filled to its end"):
            OpenSearchRetriever(where)
        failing["bulk"] = False
        stand_in.indices["wiki"]["documents"]["stale"] = {"id": "stale", "contents": "blue"}
        index_corpus(corpus, where)
        assert len(OpenSearchRetriever(where).retrieve(["blue"], 10)[0]) == 3
        with pytest.raises(ConfigError, match="exists; choose another name"):
            index_corpus(corpus, where)


def test_indexes_of_others_incomplete_or_of_another_generation_are_refused(corpus):
    with cluster() as (stand_in, where):
        stand_in.indices["wiki"] = {"settings": {}, "mappings": {"properties": {}}, "documents": {"1": {}}}
        with pytest.raises(InvalidCorpus, match="filled to its end"):
            OpenSearchRetriever(where)
        with pytest.raises(ConfigError, match="exists; choose another name"):
            index_corpus(corpus, where)
        assert stand_in.indices["wiki"]["documents"] == {"1": {}}

    def trouble(method, path):
        return (200, {"count": 3, "_shards": {"failed": 0}}) if path.endswith("_count") else None

    with cluster(trouble=trouble) as (_, where), pytest.raises(RetrievalFailed, match="took 3 of 4 passages"):
        index_corpus(corpus, where)
    with cluster(corpus, number="2.19.1") as (stand_in, where):
        stand_in.version["number"] = "3.1.0"
        with pytest.raises(InvalidCorpus, match="another generation"):
            OpenSearchRetriever(where)


GOOD = {
    "timed_out": False,
    "_shards": {"total": 2, "successful": 2, "skipped": 0, "failed": 0},
    "hits": {"hits": [{"_id": "0", "_score": 1.0, "_source": {"id": "sky", "contents": "Sky"}}]},
    "status": 200,
}
HIT = GOOD["hits"]["hits"][0]
BAD = {
    "a page": (200, b"<html>"),
    "nothing": (200, b""),
    "null": (200, None),
    "overloaded": (429, {"error": {"type": "rejected_execution_exception"}, "status": 429}),
    "broken": (500, {"error": "x", "status": 500}),
    "gone": (404, {"error": {"type": "index_not_found_exception"}, "status": 404}),
    "no answers": (200, {"took": 1}),
    "an answer too few": (200, {"responses": []}),
    "an answer too many": (200, {"responses": [GOOD, GOOD]}),
    "an error inside": (200, {"responses": [{"error": {"type": "search_phase_execution_exception"}, "status": 503}]}),
    "late": (200, {"responses": [GOOD | {"timed_out": True}]}),
    "a shard less": (200, {"responses": [GOOD | {"_shards": {"total": 2, "successful": 1, "failed": 1}}]}),
    "no hits": (200, {"responses": [{**GOOD, "hits": {}}]}),
    "no score": (200, {"responses": [{**GOOD, "hits": {"hits": [HIT | {"_score": None}]}}]}),
    "no source": (200, {"responses": [{**GOOD, "hits": {"hits": [{"_id": "0", "_score": 1.0}]}}]}),
    "no id": (200, {"responses": [{**GOOD, "hits": {"hits": [HIT | {"_source": {"contents": "x"}}]}}]}),
}


@pytest.mark.parametrize("told", [(200, {"responses": [GOOD]}), *BAD.values()], ids=["good", *BAD])
def test_an_answer_that_is_not_whole_is_an_error(corpus, told):
    with cluster(corpus) as (stand_in, where):
        retriever = OpenSearchRetriever(where)
        stand_in.trouble = lambda method, path: told
        if told[1] == {"responses": [GOOD]}:
            assert [passage.id for passage in retriever.retrieve(["sky"], 3)[0]] == ["sky"]
        else:
            with pytest.raises(RetrievalFailed, match="/wiki: "):
                retriever.retrieve(["sky"], 3)


def test_queries_of_more_terms_than_opensearch_takes_are_cut_between_words():
    short = " wi-fi " * 140
    assert shorten(short) == short
    long = "wi-fi the " * 1000
    assert len(analyse(shorten(long))) == 1024
    assert long.startswith(shorten(long))
    assert (shorten("東" * 2000), shorten("half \ud800")) == ("", "half ?")
    assert search_body("sea", 5)["query"] == {"match": {"contents": {"query": "sea"}}}
    assert opensearch_retriever.MAX_TERMS == 1024
