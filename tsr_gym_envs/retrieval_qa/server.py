"""The retrieval server: an ASGI application that answers both published `/retrieve` dialects from any retriever.

POST /retrieve takes ``{"queries", "topk", "return_scores"}`` (Search-R1, Tree-GRPO, verl) or ``{"query", ...}`` (SkyRL,
verl-agent); GET /health and GET /metrics watch it. Importing this needs the extra `serve`.
"""

import asyncio
import json
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tsr_gym.errors import RetrievalFailed
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.contract import Passage, Retriever
from tsr_gym_envs.retrieval_qa.corpus import contents_of
from tsr_gym_envs.retrieval_qa.http_retriever import DIGEST_HEADER
from tsr_gym_envs.serving import CLIENT_LEFT, MAX_BODY, BodyLimit, client_left

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of one request: more is answered with 422, a longer body with 413.

    Attributes:
        default_k: Passages a query where the request names no `topk`.
        max_k: Most passages a query.
        max_queries: Most queries.
        max_passages: Most queries times passages.
        max_query: Most characters of a query.
        max_body: Most bytes.
    """

    default_k: int = 3
    max_k: int = 1000
    max_queries: int = 1024
    max_passages: int = 20_000
    max_query: int = 10_000
    max_body: int = MAX_BODY


class Wish(NamedTuple):
    """The search of a request.

    Attributes:
        queries: The queries.
        k: Most passages for each.
        scores: Whether scores are wanted with the passages.
    """

    queries: list[str]
    k: int
    scores: bool


def open_retriever(index: Path) -> Retriever:
    """Open an index folder of either kind, dense or BM25, and compare what a BM25 index holds with its digests."""
    from tsr_gym_envs.retrieval_qa.dense_retriever import DENSE, DenseRetriever

    return DenseRetriever(index) if (index / DENSE).exists() else BM25Retriever(index, verify=True)


def retrieval_app(retriever: Retriever, *, limits: ServerLimits = ServerLimits(), threads: int = 2) -> Starlette:
    """Return the application.

    Args:
        retriever: What searches; called from several threads at once.
        limits: What one request may ask for.
        threads: Searches at the same time; further ones wait.
    """
    searching = ThreadPoolExecutor(threads, "search")
    metrics = Metrics()

    async def retrieve(request: Request) -> Response:
        began = time.perf_counter()
        status, num_queries = 500, 0
        try:
            wish = read_wish(await request.body(), limits)
            num_queries = len(wish.queries)
            reply = await asyncio.get_running_loop().run_in_executor(searching, _answer, retriever, wish)
            status = 200
            return Response(reply, media_type="application/json", headers={DIGEST_HEADER: retriever.digest})
        except HTTPException as error:
            status = error.status_code
            raise
        except ClientDisconnect:
            status = CLIENT_LEFT
            raise
        except RetrievalFailed as error:
            status = 503
            raise HTTPException(status, str(error)) from error
        finally:
            metrics.count(status, num_queries, time.perf_counter() - began)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "digest": retriever.digest}, headers={DIGEST_HEADER: retriever.digest})

    async def show_metrics(_: Request) -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        searching.shutdown()

    return Starlette(
        routes=[
            Route("/retrieve", retrieve, methods=["POST"]),
            Route("/health", health),
            Route("/metrics", show_metrics),
        ],
        middleware=[Middleware(BodyLimit, max_bytes=limits.max_body)],
        exception_handlers={HTTPException: _refused, ClientDisconnect: client_left, Exception: _failed},
        lifespan=lifespan,
    )


def read_wish(body: bytes, limits: ServerLimits) -> Wish:
    """Return the search that a request of either dialect asks for.

    Raises:
        HTTPException: 400 where the body is no JSON object, 422 where a value is missing, wrong or beyond the limits.
    """
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"wanted a JSON object, got what cannot be read: {error}") from error
    if not isinstance(asked, dict):
        raise HTTPException(400, f"wanted a JSON object, got a {type(asked).__name__}")
    match asked:
        case {"query": str(query), **rest} if "queries" not in rest:
            queries = [query]
        case {"queries": list(queries), **rest} if "query" not in rest and all(isinstance(q, str) for q in queries):
            pass
        case _:
            raise HTTPException(422, 'wanted either "query", a text, or "queries", a list of texts')
    k, scores = asked.get("topk"), asked.get("return_scores", False)
    k = limits.default_k if k is None else k
    if type(k) is not int or not 1 <= k <= limits.max_k:
        raise HTTPException(
            422, f'wanted "topk" from 1 to {limits.max_k}, or null for {limits.default_k}, got {k!r:.50}'
        )
    if not isinstance(scores, bool):
        raise HTTPException(422, f'wanted "return_scores" true or false, got {scores!r:.50}')
    if len(queries) > limits.max_queries or len(queries) * k > limits.max_passages:
        raise HTTPException(
            422,
            f"wanted at most {limits.max_queries} queries and {limits.max_passages} passages in all, "
            f"got {len(queries)} queries of {k} passages; ask in parts",
        )
    if (longest := max(map(len, queries), default=0)) > limits.max_query:
        raise HTTPException(
            422, f"wanted queries of at most {limits.max_query} characters, got one of {longest}; shorten it"
        )
    return Wish(queries, k, scores)


def _answer(retriever: Retriever, wish: Wish) -> bytes:
    results = retriever.retrieve(wish.queries, wish.k) if wish.queries else []
    result = [[_shown(passage, wish.scores) for passage in passages] for passages in results]
    return json.dumps({"result": result}).encode()


def _shown(passage: Passage, scores: bool) -> dict[str, Any]:
    document = {"id": passage.id, "contents": contents_of(passage)}
    return {"document": document, "score": passage.score} if scores else document


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)


def _failed(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"the server failed: {type(error).__name__}"}, 500)


class Metrics:
    """Counts of one server, in Prometheus' text form; only the event loop touches them."""

    def __init__(self) -> None:
        self._requests: Counter[int] = Counter()
        self._queries = 0
        self._buckets = [0] * (len(BUCKETS_S) + 1)
        self._seconds = 0.0

    def count(self, status: int, num_queries: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests[status] += 1
        self._queries += num_queries
        self._buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds += seconds

    def text(self) -> str:
        """Return all counts."""
        name = "tsr_retrieval"
        # A client that left is no error of the server.
        errors = sum(count for status, count in self._requests.items() if status >= 400 and status != CLIENT_LEFT)
        bounds = [*(str(bound) for bound in BUCKETS_S), "+Inf"]
        lines = [
            f"# TYPE {name}_requests_total counter",
            *(f'{name}_requests_total{{status="{code}"}} {count}' for code, count in sorted(self._requests.items())),
            f"# TYPE {name}_errors_total counter",
            f"{name}_errors_total {errors}",
            f"# TYPE {name}_queries_total counter",
            f"{name}_queries_total {self._queries}",
            f"# TYPE {name}_request_seconds histogram",
            *(
                f'{name}_request_seconds_bucket{{le="{bound}"}} {count}'
                for bound, count in zip(bounds, accumulate(self._buckets), strict=True)
            ),
            f"{name}_request_seconds_sum {self._seconds}",
            f"{name}_request_seconds_count {sum(self._buckets)}",
        ]
        return "\n".join(lines) + "\n"
