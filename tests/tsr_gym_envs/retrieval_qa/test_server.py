"""The retrieval server, and the client that trusts no server."""

import json
import os
import pickle
import re
import signal
import socket
import time
from contextlib import suppress
from threading import Barrier, Thread

import httpx
import pytest

from tests.tsr_gym_envs.retrieval_qa.fakes import ROWS, scripted, served, served_slowly, write_rows
from tsr_gym import ConfigError, RetrievalFailed, restore, snapshot
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.contract import Passage, Question
from tsr_gym_envs.retrieval_qa.corpus import build_index
from tsr_gym_envs.retrieval_qa.env import make
from tsr_gym_envs.retrieval_qa.http_retriever import HttpRetriever
from tsr_gym_envs.retrieval_qa.server import BUCKETS_S, Metrics, ServerLimits, retrieval_app
from tsr_gym_envs.serving import serving

CONTENTS = {row["id"]: row["contents"] for row in ROWS}
LIMITS = ServerLimits(default_k=2, max_k=5, max_queries=4, max_passages=10, max_query=1000, max_body=2000)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    return build_index(write_rows(folder / "corpus.jsonl"), folder / "index")


@pytest.fixture(scope="module")
def url(index):
    with serving(retrieval_app(BM25Retriever(index), limits=LIMITS)) as url:
        yield url


def ask(url, **asked):
    return httpx.post(f"{url}/retrieve", json=asked)


def test_queries_are_answered_as_search_r1_and_skyrl_ask(url, index):
    answer = ask(url, queries=["blue", "pines", "zebra"], topk=3, return_scores=True)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    found = BM25Retriever(index).retrieve(["blue", "pines", "zebra"], 3)
    assert answer.json() == {
        "result": [
            [{"document": {"id": p.id, "contents": CONTENTS[p.id]}, "score": p.score} for p in passages]
            for passages in found
        ]
    }
    assert [len(hits) for hits in answer.json()["result"]] == [3, 1, 0]
    (hits,) = ask(url, query="pines", topk=3, return_scores=True).json()["result"]
    assert [hit["document"] for hit in hits] == [{"id": "wood", "contents": CONTENTS["wood"]}]
    assert ask(url, query="pines").json() == {"result": [[{"id": "wood", "contents": CONTENTS["wood"]}]]}
    for asked in ({"topk": None}, {}):
        assert [len(hits) for hits in ask(url, queries=["blue"], **asked).json()["result"]] == [2]
    assert ask(url, queries=[]).json() == {"result": []}
    # The published server fails on this request.
    for asked in ({"return_scores": False}, {}):
        answer = ask(url, queries=["pines", "deep"], topk=1, **asked)
        assert answer.json() == {
            "result": [[{"id": "wood", "contents": CONTENTS["wood"]}], [{"id": "sea", "contents": CONTENTS["sea"]}]]
        }


@pytest.mark.parametrize("query", ["", " ", "\x00", "\ud800", "🙂", "'s", "the", "\u2028", "a" * 900], ids=range(9))
def test_no_text_is_an_error(url, query):
    answer = httpx.post(f"{url}/retrieve", content=json.dumps({"query": query}))
    assert (answer.status_code, answer.json()) == (200, {"result": [[]]})


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, b"", "wanted a JSON object"),
        (400, b'{"query": "blue"', "wanted a JSON object"),
        (400, b"\xff\xfe\x00", "wanted a JSON object"),
        (400, b"[" * 1900, "wanted a JSON object"),
        (400, b'["blue"]', "got a list"),
        (422, b"{}", 'either "query", a text, or "queries"'),
        (422, b'{"query": "a", "queries": ["b"]}', 'either "query", a text, or "queries"'),
        (422, b'{"query": 5}', 'either "query", a text, or "queries"'),
        (422, b'{"queries": ["blue", null]}', 'either "query", a text, or "queries"'),
        (422, b'{"query": "a", "topk": 0}', '"topk" from 1 to 5, or null for 2, got 0'),
        (422, b'{"query": "a", "topk": 6}', '"topk" from 1 to 5, or null for 2, got 6'),
        (422, b'{"query": "a", "topk": "3"}', '"topk" from 1 to 5'),
        (422, b'{"query": "a", "topk": 3.0}', '"topk" from 1 to 5'),
        (422, b'{"query": "a", "topk": true}', '"topk" from 1 to 5'),
        (422, b'{"query": "a", "return_scores": 1}', '"return_scores" true or false, got 1'),
        (422, b'{"queries": ["a", "a", "a", "a", "a"], "topk": 1}', "at most 4 queries and 10 passages in all"),
        (422, b'{"queries": ["a", "a", "a"], "topk": 4}', "got 3 queries of 4 passages"),
        (422, json.dumps({"query": "x" * 1001}).encode(), "queries of at most 1000 characters, got one of 1001"),
        (422, json.dumps({"queries": ["a", "x" * 1001]}).encode(), "queries of at most 1000 characters"),
        (413, b" " * 2001, "at most 2000 bytes"),
    ],
    ids=range(20),
)
def test_what_cannot_be_answered_is_refused_and_said_why(url, status, body, message):
    answer = httpx.post(f"{url}/retrieve", content=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    # The server is none the worse for it.
    assert ask(url, query="pines").status_code == 200


def test_other_places_are_refused_in_json_and_the_index_is_named_in_every_answer(url, index):
    for status, answer in ((404, httpx.get(f"{url}/")), (405, httpx.get(f"{url}/retrieve"))):
        assert (answer.status_code, list(answer.json())) == (status, ["error"])
    digest = BM25Retriever(index).digest
    assert httpx.get(f"{url}/health").json() == {"status": "ok", "digest": digest}
    assert ask(url, query="blue").headers["x-index-digest"] == digest


class Failing:
    digest = "failing"

    def __init__(self, error):
        self.error = error

    def retrieve(self, queries, k):
        raise self.error


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (RetrievalFailed("the shard is gone"), 503, "the shard is gone"),
        (KeyError("a mistake"), 500, "the server failed: KeyError"),
    ],
)
def test_a_search_that_fails_is_no_empty_answer(error, status, message):
    with serving(retrieval_app(Failing(error))) as url:
        answer = ask(url, query="blue")
        counts = httpx.get(f"{url}/metrics").text
    assert (answer.status_code, answer.json()) == (status, {"error": message})
    assert f'tsr_retrieval_requests_total{{status="{status}"}} 1' in counts
    assert "tsr_retrieval_errors_total 1" in counts


def test_metrics_count_requests_queries_and_seconds_up_to_each_bound(index):
    with serving(retrieval_app(BM25Retriever(index), limits=LIMITS)) as url:
        for asked in ({"query": "blue"}, {"queries": ["a", "b", "c"]}, {"query": 1}):
            ask(url, **asked)
        answer = httpx.get(f"{url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    for line in (
        'tsr_retrieval_requests_total{status="200"} 2',
        'tsr_retrieval_requests_total{status="422"} 1',
        "tsr_retrieval_errors_total 1",
        "tsr_retrieval_queries_total 4",
        'tsr_retrieval_request_seconds_bucket{le="+Inf"} 3',
        "tsr_retrieval_request_seconds_count 3",
    ):
        assert line in lines
    assert answer.text.endswith("\n")
    metrics = Metrics()
    for seconds in (0.0, BUCKETS_S[0], BUCKETS_S[0] * 1.01, 99.0):
        metrics.count(200, 1, seconds)
    counts = [int(count) for count in re.findall(r"_bucket{le=.*} (\d+)", metrics.text())]
    assert counts == [2] + [3] * (len(BUCKETS_S) - 1) + [4]


def test_a_client_that_leaves_is_no_error_of_the_server(index, caplog):
    with serving(retrieval_app(BM25Retriever(index), limits=LIMITS)) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
            connection.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        counts = ""
        while "requests_total{" not in counts:
            counts = httpx.get(f"{url}/metrics").text
    assert 'tsr_retrieval_requests_total{status="499"} 1' in counts
    assert "tsr_retrieval_errors_total 0" in counts
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_200_clients_at_once_get_every_answer_right(mini_index, golden):
    index = mini_index
    queries = [row["query"] for row in golden("retrieval/pyserini_hits.jsonl")[:200]]
    wanted = BM25Retriever(index).retrieve(queries, 3)
    found, failures, start = {}, [], Barrier(200)
    with served(index) as (server, url):
        batches = HttpRetriever(url, max_retries=0, timeout_s=60)
        singles = HttpRetriever(url, dialect="single", max_retries=0, timeout_s=60)

        def play(client):
            start.wait()
            try:
                retriever = singles if client % 3 else batches
                found[client] = retriever.retrieve([queries[client]], 3)[0]
            except Exception as error:
                failures.append(error)

        clients = [Thread(target=play, args=(client,)) for client in range(200)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert batches.digest == BM25Retriever(index).digest
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)
    assert failures == []
    assert [found[number] for number in range(200)] == wanted


JSON = {"content-type": "application/json"}
OSLO = {"document": {"id": "1", "contents": '"Oslo"\nA city.'}, "score": 2.5}


def answering(reply, status=200, headers=JSON):
    """Answer every POST in the same way, and know nothing of /health, as the published servers do."""
    content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return lambda method, path, body: (status, headers, content) if method == "POST" else (404, {}, b"")


def results_for(method, path, body):
    """Answer with a passage a query whose title is the query."""
    if method != "POST":
        return 404, {}, b""
    asked = json.loads(body)
    queries = [asked["query"]] if "query" in asked else asked["queries"]
    hits = [[{"document": {"id": "x", "contents": f'"{query}"\ntext'}, "score": 1}] for query in queries]
    return 200, JSON, json.dumps({"result": hits}).encode()


def quick(url, **settings):
    return HttpRetriever(url, **{"backoff_s": 0.01, "timeout_s": 5, **settings})


def test_dialects_ask_for_all_or_single_queries_and_many_are_sent_in_parts():
    with scripted(results_for) as (url, script):
        found = quick(url).retrieve(["oslo", "bergen"], 3)
    assert found == [[Passage("x", "oslo", "text", 1.0)], [Passage("x", "bergen", "text", 1.0)]]
    method, path, body = script.asked[-1]
    assert (method, path) == ("POST", "/retrieve")
    assert json.loads(body) == {"queries": ["oslo", "bergen"], "topk": 3, "return_scores": True}
    with scripted(results_for) as (url, script):
        found = quick(url, dialect="single").retrieve(["oslo", "bergen"], 3)
    assert [passages[0].title for passages in found] == ["oslo", "bergen"]
    asked = [json.loads(body) for method, _, body in script.asked if method == "POST"]
    assert asked == [{"query": query, "topk": 3, "return_scores": True} for query in ("oslo", "bergen")]
    queries = [str(number) for number in range(7)]
    with scripted(results_for) as (url, script):
        assert [found[0].title for found in quick(url, max_batch=3).retrieve(queries, 1)] == queries
        assert quick(url).retrieve([], 1) == []
    assert [len(json.loads(body)["queries"]) for method, _, body in script.asked if method == "POST"] == [3, 3, 1]


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("", ["/health", "/retrieve"]),
        ("/", ["/health", "/retrieve"]),
        ("/retrieve", ["/health", "/retrieve"]),
        ("/v2/find?a=b", ["/v2/health", "/v2/find?a=b"]),
    ],
)
def test_an_address_with_a_path_is_taken_as_it_is(given, asked):
    with scripted(results_for) as (url, script):
        quick(url + given).retrieve(["oslo"], 1)
    assert [path for _, path, _ in script.asked] == asked


def test_documents_are_read_in_every_published_form_and_no_document_is_an_answer():
    documents = [
        {"id": "1", "contents": '"Oslo"\nA city.'},
        {"id": 2, "contents": '"Oslo"\nA city.', "title": "let alone", "text": "let alone"},
        {"id": "3", "title": "Oslo", "text": "A city."},
    ]
    hits = [{"document": document, "score": 1.5} for document in documents]
    with scripted(answering({"result": [hits], "more": 1})) as (url, _):
        found = quick(url).retrieve(["oslo"], 3)
    assert found == [[Passage(name, "Oslo", "A city.", 1.5) for name in ("1", "2", "3")]]
    with scripted(answering({"result": [[], [OSLO]]})) as (url, _):
        assert [len(passages) for passages in quick(url).retrieve(["zebra", "oslo"], 3)] == [0, 1]


BAD = {
    "no JSON": b"not json",
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "null": None,
    "no result": {"results": [[OSLO]]},
    "result null": {"result": None},
    "no list at all": {"result": []},
    "a list too many": {"result": [[OSLO], [OSLO]]},
    "no list": {"result": [OSLO]},
    "null for a query": {"result": [None]},
    "more than asked for": {"result": [[OSLO] * 4]},
    "null for a passage": {"result": [[None]]},
    "no document": {"result": [[{"score": 1.0}]]},
    "document null": {"result": [[{"document": None, "score": 1.0}]]},
    "no score": {"result": [[{"document": OSLO["document"]}]]},
    "score of text": {"result": [[{**OSLO, "score": "high"}]]},
    "score not a number": b'{"result": [[{"document": {"id": "1", "contents": "x"}, "score": NaN}]]}',
    "score without end": b'{"result": [[{"document": {"id": "1", "contents": "x"}, "score": 1e999}]]}',
    "score too long": b'{"result": [[{"document": {"id": "1", "contents": "x"}, "score": 1' + b"0" * 400 + b"}]]}",
    "no id": {"result": [[{"document": {"contents": "x"}, "score": 1.0}]]},
    "id empty": {"result": [[{"document": {"id": "", "contents": "x"}, "score": 1.0}]]},
    "no contents": {"result": [[{"document": {"id": "1"}, "score": 1.0}]]},
    "contents null": {"result": [[{"document": {"id": "1", "contents": None}, "score": 1.0}]]},
    "half a character": {"result": [[{"document": {"id": "1", "contents": "\ud800"}, "score": 1.0}]]},
}


@pytest.mark.parametrize("reply", BAD.values(), ids=BAD)
def test_an_answer_that_is_not_what_was_asked_for_is_an_error_at_once(reply):
    with scripted(answering(reply)) as (url, script):
        with pytest.raises(RetrievalFailed, match=r"http://127\.0\.0\.1.*/retrieve: "):
            quick(url).retrieve(["oslo"], 3)
        assert sum(method == "POST" for method, _, _ in script.asked) == 1


@pytest.mark.parametrize("status", [201, 204, 302, 401, 404, 501])
def test_any_other_status_is_an_error_at_once(status):
    reply = b"" if status == 204 else b"<html>sorry</html>"
    with scripted(answering(reply, status, {"location": "http://127.0.0.1:1/"})) as (url, script):
        with pytest.raises(RetrievalFailed, match=f"wanted status 200, got status {status}"):
            quick(url).retrieve(["oslo"], 3)
        assert sum(method == "POST" for method, _, _ in script.asked) == 1


@pytest.mark.parametrize("trouble", [429, 503, 504, "hangs up", "half an answer"])
def test_what_may_pass_is_tried_again_and_then_an_error(trouble):
    times = {"failing": 2}

    def answer(method, path, body):
        if method != "POST":
            return 404, {}, b""
        times["failing"] -= 1
        if times["failing"] < 0:
            return results_for(method, path, body)
        if trouble == "hangs up":
            return None
        if trouble == "half an answer":
            return 200, {"content-length": "1000", "connection": "close"}, b"{"
        return trouble, {}, b"<html>busy</html>"

    with scripted(answer) as (url, script):
        assert quick(url, max_retries=2).retrieve(["oslo"], 3)[0][0].title == "oslo"
        assert sum(method == "POST" for method, _, _ in script.asked) == 3
        times["failing"] = 10
        with pytest.raises(RetrievalFailed, match="no answer after 3 tries"):
            quick(url, max_retries=2).retrieve(["oslo"], 3)
        assert sum(method == "POST" for method, _, _ in script.asked) == 6


def test_tries_are_spaced_ever_further_apart_and_end():
    began = time.monotonic()
    with scripted(answering(b"", 503)) as (url, _), pytest.raises(RetrievalFailed):
        quick(url, backoff_s=0.1, max_retries=2).retrieve(["oslo"], 3)
    assert time.monotonic() - began >= 0.1 + 0.2
    with (
        scripted(answering({"result": [[OSLO]] * 10_000})) as (url, _),
        pytest.raises(RetrievalFailed, match="longer than"),
    ):
        quick(url, max_reply_bytes=10_000).retrieve(["oslo"], 3)
    with pytest.raises(RetrievalFailed, match=r"no answer after 2 tries in .* ConnectError"):
        quick("http://127.0.0.1:1", max_retries=1).retrieve(["oslo"], 3)


@pytest.mark.parametrize("how", ["silent", "dribbling"])
def test_a_server_that_is_too_slow_is_given_up(how):
    def serve(connection):
        # The client hangs up.
        with suppress(OSError), connection:
            connection.recv(10_000)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            for _ in range(400):
                time.sleep(0.05)
                connection.sendall(b" " if how == "dribbling" else b"")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        Thread(target=lambda: serve(listener.accept()[0]), daemon=True).start()
        began = time.monotonic()
        with pytest.raises(RetrievalFailed, match="ReadTimeout"):
            quick(url, timeout_s=0.3, max_retries=0).retrieve(["oslo"], 3)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("localhost:8000", {}), ("ftp://localhost", {}), ("http://", {}), ("http://localhost", {"dialect": "none"}),
        ("http://localhost", {"timeout_s": 0}), ("http://localhost", {"max_retries": -1}),
        ("http://localhost", {"max_batch": 0}),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused_at_once(url, settings):
    with pytest.raises(ConfigError):
        HttpRetriever(url, **settings)


def test_the_digest_is_the_servers_or_the_address_and_may_not_change():
    with scripted(results_for) as (url, _):
        by_address = [quick(url), quick(f"{url}/retrieve"), quick(url, dialect="single"), quick(f"{url}/other")]
        digests = [retriever.digest for retriever in by_address]
    assert (digests[0], len(set(digests))) == (digests[1], 3)
    told = lambda *_: (200, {"X-Index-Digest": "abc"}, b"{}")  # noqa: E731
    with scripted(told) as (one, _), scripted(told) as (two, _):
        assert quick(one).digest == quick(two).digest == "abc"
    digest = {"now": "before"}

    def answer(method, path, body):
        return 200, {"x-index-digest": digest["now"]}, json.dumps({"result": [[OSLO]]}).encode()

    with scripted(answer) as (url, _):
        retriever = quick(url)
        assert len(retriever.retrieve(["oslo"], 1)[0]) == 1
        digest["now"] = "after"
        with pytest.raises(RetrievalFailed, match="the index changed from before to after"):
            retriever.retrieve(["oslo"], 1)
        assert quick(url).digest == "after"


def test_our_own_server_is_the_embedded_retriever_at_a_distance(index):
    here = BM25Retriever(index)
    queries = ["blue sea", "pines", "zebra", "\ud800", "coal"]
    with served(index) as (_, url):
        for there in (HttpRetriever(url), HttpRetriever(url, dialect="single")):
            assert there.digest == here.digest
            assert there.retrieve(queries, 3) == here.retrieve(queries, 3)


def test_a_retriever_may_be_pickled_and_forked(index):
    with served(index) as (_, url):
        retriever = quick(url, dialect="single", max_retries=1)
        wanted = retriever.retrieve(["blue"], 2)
        again = pickle.loads(pickle.dumps(retriever))
        assert again.retrieve(["blue"], 2) == wanted
        assert vars(again).keys() == vars(retriever).keys()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            same = all(retriever.retrieve(["blue"], 2) == wanted for _ in range(20))
            os.write(write, b"same" if same else b"other")
            os._exit(0)
        assert all(retriever.retrieve(["blue"], 2) == wanted for _ in range(20))
        assert os.read(read, 10) == b"same"
        os.waitpid(child, 0)


def test_a_server_that_is_killed_in_mid_request_is_an_error_and_its_successor_is_taken(index):
    failures = []
    with served_slowly(index) as (server, url):
        retriever = quick(url, max_retries=1)
        wanted = retriever.retrieve(["blue"], 2)

        def ask():
            with pytest.raises(RetrievalFailed, match="no answer after 2 tries") as failure:
                retriever.retrieve(["deep sea"], 2)
            failures.append(failure)

        client = Thread(target=ask)
        client.start()
        assert server.stdout.readline() == "begun\n"
        server.kill()
        client.join()
    assert len(failures) == 1
    port = url.rpartition(":")[2]
    with served(index, "--port", port):
        assert retriever.retrieve(["blue"], 2) == wanted
        assert [passage.id for passage in retriever.retrieve(["deep sea"], 2)[0]] == ["sea"]


def test_an_episode_goes_on_from_its_snapshot_when_the_server_is_back(index):
    questions = [Question("q0", "own", "How deep is the sea?", ("deep",), ("sea",))]

    def play(env, searches):
        return [env.step(f"<search>{search}</search>") for search in searches]

    undisturbed = make(questions, retriever=BM25Retriever(index))
    undisturbed.reset(seed=1)
    wanted = play(undisturbed, ["blue", "deep sea"])

    with served_slowly(index) as (server, url):
        env = make(questions, retriever=quick(url, max_retries=0, timeout_s=60))
        env.reset(seed=1)
        assert play(env, ["blue"]) == wanted[:1]
        before = snapshot(env)
        killer = Thread(target=lambda: (server.stdout.readline(), server.kill()))
        killer.start()
        with pytest.raises(RetrievalFailed):
            env.step("<search>deep sea</search>")
        killer.join()
        # The failed turn did not happen.
        assert snapshot(env).digest == before.digest
    with served(index) as (_, url):
        # A new process would do just this: the server may even be elsewhere.
        env = make(questions, retriever=quick(url))
        env.reset(seed=2)
        restore(env, before)
        assert play(env, ["deep sea"]) == wanted[1:]
