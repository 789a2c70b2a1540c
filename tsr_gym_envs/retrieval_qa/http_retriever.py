"""HttpRetriever: passages from a server that speaks one of the two published `/retrieve` dialects.

An incomplete or malformed answer is an error, never an empty list.
"""

import json
import math
import os
import time
from collections.abc import Sequence
from functools import cache, partial
from hashlib import blake2b
from threading import local
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from tsr_gym.errors import ConfigError, RetrievalFailed
from tsr_gym.optional import require
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.retrieval_qa.corpus import row_of, split_contents, whole

DIGEST_HEADER = "x-index-digest"
# Statuses after which the same request may succeed.
PASSING = frozenset({429, 500, 502, 503, 504})
MAX_DELAY_S = 10.0


class HttpRetriever:
    """Ask a server for passages.

    The digest is that of the server's index if the server reports it, as ours does. Then the server may move or
    restart, and a later answer with another digest is an error. For other servers the digest is made of the address
    alone: after a change of the index, clear all caches of its results. Threads may share a retriever; it may be
    pickled and forked.

    Args:
        url: Address, with or without ``/retrieve``.
        dialect: ``"batch"`` sends ``{"queries", "topk", "return_scores"}`` (Search-R1, Tree-GRPO, verl), ``"single"``
            one ``{"query", "topk", "return_scores"}`` after the other (SkyRL, verl-agent).
        timeout_s: Most seconds for one try.
        max_retries: Further tries after no answer, or a status that may pass, such as 503.
        backoff_s: Seconds before the first further try; twice as long before each next one, up to 10.
        max_batch: Most queries in one request.
        max_reply_bytes: Longest answer that is read.

    Raises:
        ConfigError: The address or the dialect is none.
        MissingExtra: httpx is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        dialect: Literal["batch", "single"] = "batch",
        timeout_s: float = 30.0,
        max_retries: int = 3,
        backoff_s: float = 0.5,
        max_batch: int = 256,
        max_reply_bytes: int = 64 * 2**20,
    ) -> None:
        require("httpx", "serve")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or dialect not in ("batch", "single"):
            raise ConfigError(f'wanted an http address and dialect "batch" or "single", got {url!r} and {dialect!r}')
        if timeout_s <= 0 or max_retries < 0 or backoff_s < 0 or max_batch < 1:
            raise ConfigError("wanted timeout_s > 0, max_retries >= 0, backoff_s >= 0 and max_batch >= 1")
        self.url = url if parts.path.strip("/") else urlunsplit(parts._replace(path="/retrieve"))
        self._dialect = dialect
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._backoff_s = backoff_s
        self._max_batch = max_batch if dialect == "batch" else 1
        self._max_reply_bytes = max_reply_bytes
        self._digest: str | None = None
        self._own = _Own()

    def __reduce__(self) -> tuple[Any, ...]:
        again = partial(
            HttpRetriever,
            dialect=self._dialect,
            timeout_s=self._timeout_s,
            max_retries=self._max_retries,
            backoff_s=self._backoff_s,
            max_batch=self._max_batch,
            max_reply_bytes=self._max_reply_bytes,
        )
        return again, (self.url,)

    @property
    def digest(self) -> str:
        """The digest of the server's index, or of the address if the server reports none.

        Requested once, at ``/health`` next to the address.

        Raises:
            RetrievalFailed: The server does not answer.
        """
        if self._digest is None:
            parts = urlsplit(self.url)
            health = parts._replace(path=f"{parts.path.rpartition('/')[0]}/health", query="")
            headers, _ = self._ask("GET", urlunsplit(health), None)
            reported = headers.get(DIGEST_HEADER)
            self._digest = reported or blake2b(f"{self.url} {self._dialect}".encode(), digest_size=16).hexdigest()
        return self._digest

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the best `k` passages of each query, best first.

        Raises:
            RetrievalFailed: No answer after all tries, a status other than 200, or an answer that is not what was asked
                for: no JSON, too few or too many lists, too many passages, a passage without id, contents or score.
        """
        results: list[list[Passage]] = []
        for start in range(0, len(queries), self._max_batch):
            results += self._retrieve(list(queries[start : start + self._max_batch]), k)
        return results

    def _retrieve(self, queries: list[str], k: int) -> list[list[Passage]]:
        asked = {"query": queries[0]} if self._dialect == "single" else {"queries": queries}
        body = json.dumps(asked | {"topk": k, "return_scores": True}).encode()
        expected = self.digest
        headers, reply = self._ask("POST", self.url, body)
        reported = headers.get(DIGEST_HEADER)
        if reported is not None and reported != expected:
            raise RetrievalFailed(
                f"{self.url}: the index changed from {expected} to {reported}; start a new run to use it"
            )
        try:
            return read_reply(reply, len(queries), k)
        except (ValueError, OverflowError, RecursionError) as error:
            raise RetrievalFailed(f"{self.url}: {error}; got {reply[:200]!r}") from error

    def _ask(self, method: str, url: str, body: bytes | None) -> tuple[Any, bytes]:
        """Return headers and body of an answer; a GET also accepts the answer that the path does not exist."""
        import httpx

        began = time.monotonic()
        delay, problem = self._backoff_s, ""
        for left in range(self._max_retries, -1, -1):
            try:
                status, headers, reply = self._try(method, url, body)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__} {error}"
            else:
                if status == 200 or (method == "GET" and status not in PASSING):
                    return headers, reply
                problem = f"status {status}: {reply[:200]!r}"
                if status not in PASSING:
                    raise RetrievalFailed(f"{url}: wanted status 200, got {problem}")
            if left:
                time.sleep(delay)
                delay = min(2 * delay, MAX_DELAY_S)
        raise RetrievalFailed(
            f"{url}: no answer after {1 + self._max_retries} tries in {time.monotonic() - began:.1f} s, the last: "
            f"{problem}; see that the server runs, then go on from the episode's snapshot"
        )

    def _try(self, method: str, url: str, body: bytes | None) -> tuple[int, Any, bytes]:
        import httpx

        deadline = time.monotonic() + self._timeout_s
        headers = {"content-type": "application/json"} if body is not None else {}
        with self._http().stream(method, url, content=body, headers=headers) as response:
            reply = bytearray()
            for part in response.iter_bytes():
                reply += part
                # The library's limits are per read: a server that answers byte by byte would never exceed them.
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"no whole answer in {self._timeout_s} s")
                if len(reply) > self._max_reply_bytes:
                    raise RetrievalFailed(f"{url}: the answer is longer than {self._max_reply_bytes} bytes; lower k")
            return response.status_code, response.headers, bytes(reply)

    def _http(self) -> Any:
        """Return the client of this thread."""
        import httpx

        if self._own.process != os.getpid():
            client = httpx.Client(timeout=self._timeout_s, verify=_certificates())
            self._own.process, self._own.client = os.getpid(), client
        return self._own.client


class _Own(local):
    """The client of a thread, and its process: a fork shares sockets with its parent.

    Threads that share a client of httpx would close each other's connections: one looks whether an idle connection has
    expired, while another begins to use it.
    """

    process: int | None = None
    client: Any = None


@cache
def _certificates() -> Any:
    """Return what servers' certificates are checked with; it takes longer to load than a client to make."""
    import httpx

    return httpx.create_ssl_context()


def read_reply(reply: bytes, num_queries: int, k: int) -> list[list[Passage]]:
    """Return the passages of an answer to `num_queries` queries, `k` each at most.

    Raises:
        ValueError: The answer is not ``{"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}`` of the
            right size.
    """
    document = json.loads(reply)
    result = document.get("result") if isinstance(document, dict) else None
    if not isinstance(result, list) or len(result) != num_queries:
        came = len(result) if isinstance(result, list) else "none"
        raise ValueError(f"wanted a result with a list for each of {num_queries} queries, got {came}")
    for hits in result:
        if not isinstance(hits, list) or len(hits) > k:
            raise ValueError(f"wanted a list of at most {k} passages a query")
    return [[_passage(hit) for hit in hits] for hits in result]


def _passage(hit: object) -> Passage:
    match hit:
        case {"document": document, "score": float() | int() as score} if math.isfinite(score):
            row = whole(row_of(document))
            return Passage(row.id, *split_contents(row.contents), float(score))
    raise ValueError("wanted passages with a document and a score that is a number")
