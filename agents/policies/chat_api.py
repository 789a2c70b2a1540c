"""ChatApi and ApiPolicy: a model behind a server with OpenAI's API, as the policy of a search; text in, text out.

The key comes from the environment and is written into no message, log or file. An answer, however malformed, is data;
a server that cannot be asked is an error. The candidates have no tokens, so nothing can be trained on them.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from threading import Lock, local
from time import monotonic, sleep, time
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from tsr_gym.agents.policies.chat_policy import path_from, sample_seeds
from tsr_gym.agents.policies.prompts import History, Prompt
from tsr_gym.errors import ConfigError, EngineFailed, PromptTooLong, shown
from tsr_gym.optional import require
from tsr_gym.sections import check_choices, check_numbers, setting
from tsr_gym.tools import Tool
from tsr_gym.tree import Budget, Candidate, Expand, Node, Tree
from tsr_gym.wrappers.tool_calls import read_call, write_hermes


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """An OpenAI-compatible server, and how patiently it is asked."""

    base_url: str = setting("https://api.openai.com/v1", metavar="URL")
    """Of the server, as in http://127.0.0.1:8000/v1."""
    api_key_from: str = setting("OPENAI_API_KEY", metavar="VARIABLE")
    """Environment variable that holds the key; without it no key is sent."""
    at_once: int = 8
    """Requests that are open at a time."""
    per_minute: float | None = None
    """Most requests a minute; None for no limit but the server's own, which is obeyed."""
    patience: float = 120.0
    """Seconds to wait for an answer."""
    retries: int = 6
    """How often a request is repeated that met a limit, a fault of the server or silence; waits double."""
    max_failures: int = 10
    """How many requests may fail for good, and count as empty answers, before the work stops."""
    limit_as: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the server calls the longest answer; OpenAI's newer models know only the second name."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_numbers(self, "at_once", least=1)
        check_numbers(self, "retries", "max_failures", least=0)
        check_numbers(self, "per_minute", "patience", above=0)
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"wanted a base_url such as http://127.0.0.1:8000/v1, got {parts.scheme or 'no'} scheme")
        if "@" in parts.netloc or parts.query:
            raise ConfigError(f"a key belongs into the environment variable {self.api_key_from}, not into base_url")


Messages = Sequence[Mapping[str, Any]]
# In addition to 5xx: timeout, conflict, too early, too many.
TRY_AGAIN = (408, 409, 425, 429)
LONGEST_WAIT = 60.0


class Answer(NamedTuple):
    """One answer of a server.

    Attributes:
        text: The model's text, "" where the answer could not be read; calls of tools follow it in the form of Hermes.
        finish_reason: The server's own word, ``"malformed"`` for an unreadable answer, or ``"failed"``.
        prompt_tokens: As the server counted them, 0 without a count.
        cached_tokens: The cached part of `prompt_tokens`.
        sampled_tokens: Reasoning included.
    """

    text: str
    finish_reason: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Counts of the requests to a server and their costs; add them with ``+``.

    Attributes:
        requests: That were sent, repeated ones included.
        retries: Those that were sent again.
        malformed: Answers that could not be read, and count as empty.
        failed: Questions without any answer, which count as empty answers.
        prompt_tokens: As the server counted them.
        cached_tokens: The cached part of `prompt_tokens`.
        sampled_tokens: As the server counted them.
    """

    requests: int = 0
    retries: int = 0
    malformed: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0

    def __add__(self, other: "Ledger") -> "Ledger":
        return Ledger(**{name: count + asdict(other)[name] for name, count in asdict(self).items()})

    def __str__(self) -> str:
        """Return the ledger in words."""
        return (
            f"{self.requests:,} requests ({self.retries:,} retries, {self.failed:,} failed, {self.malformed:,} "
            f"malformed), {self.prompt_tokens:,} prompt tokens ({self.cached_tokens:,} cached) and "
            f"{self.sampled_tokens:,} sampled"
        )


class ChatApi:
    """Ask a server, with patience, from several threads at once.

    Args:
        model: The name by which the server knows the model.
        config: The server.
        wait: Sleeps for some seconds.
        clock: Seconds that only grow.

    Raises:
        MissingExtra: httpx is not installed.
    """

    def __init__(
        self,
        model: str,
        config: ApiConfig,
        *,
        wait: Callable[[float], None] = sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        require("httpx", "openai")
        import httpx

        self.model = model
        self.config = config
        self._wait, self._clock = wait, clock
        self._key = os.environ.get(config.api_key_from, "").strip()
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        certificates = httpx.create_ssl_context()
        self._make_client = partial(httpx.Client, headers=headers, timeout=config.patience, verify=certificates)
        # A client a thread: while one thread takes an idle connection, another could find it expired and close it.
        self._own = local()
        self._lock = Lock()
        self._ledger = Ledger()
        self._free_at = 0.0

    @property
    def ledger(self) -> Ledger:
        """Counts of the requests so far."""
        return self._ledger

    def ask(
        self, messages: Messages, *, seed: int, temperature: float, max_tokens: int, tools: Sequence[Tool] = ()
    ) -> Answer:
        """Return an answer to a conversation.

        Args:
            messages: In order, each with ``role`` and ``content``.
            seed: Of sampling; servers make of it what they can.
            temperature: Of sampling.
            max_tokens: Longest answer.
            tools: What the model may call.

        Raises:
            EngineFailed: The server refuses the request, or too many have failed.
            PromptTooLong: The conversation is longer than the model's context.
        """
        body = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "temperature": temperature,
            "seed": seed % 2**31,
            self.config.limit_as: max_tokens,
        }
        if tools:
            body["tools"] = [tool.schema for tool in tools]
        problem = ""
        for attempt in range(self.config.retries + 1):
            self._take_turn()
            self._count(requests=1, retries=int(attempt > 0))
            answer, problem, pause = self._request(body)
            if answer is not None:
                tokens = answer._asdict()
                counts = {name: tokens[name] for name in ("prompt_tokens", "cached_tokens", "sampled_tokens")}
                self._count(malformed=int(answer.finish_reason == "malformed"), **counts)
                return answer
            if attempt < self.config.retries:
                self._hold(min(LONGEST_WAIT, 2.0**attempt) if pause is None else pause)
        self._count(failed=1)
        if self._ledger.failed > self.config.max_failures:
            raise EngineFailed(
                f"{self.config.base_url}: {self._ledger.failed} questions stayed without an answer after "
                f"{self.config.retries} retries each, the last because of {problem}: see whether the server is up, or "
                "raise max_failures, retries or patience"
            )
        return Answer("", "failed")

    def _request(self, body: Mapping[str, Any]) -> tuple[Answer | None, str, float | None]:
        """Return an answer; or None with the reason, and the seconds to wait that the server asks for, if any."""
        import httpx

        try:
            response = self._http().post(f"{self.config.base_url.rstrip('/')}/chat/completions", json=body)
        except httpx.TimeoutException:
            return None, f"silence for {self.config.patience:g} s", None
        except httpx.TransportError as error:
            return None, self._hidden(f"{type(error).__name__}: {error}"), None
        if response.status_code == 200:
            return read_answer(response.content), "", None
        text = self._hidden(response.text[:300])
        if response.status_code in TRY_AGAIN or response.status_code >= 500:
            return None, f"status {response.status_code}: {text}", retry_after(response.headers.get("retry-after"))
        if "context_length" in text or "maximum context" in text:
            raise PromptTooLong(f"{self.config.base_url}: {text}: shorten the history, or use another model")
        raise EngineFailed(
            f"{self.config.base_url} refuses to answer as {self.model!r} with status {response.status_code}: {text} "
            f"(the key is read from the environment variable {self.config.api_key_from})"
        )

    def _http(self) -> Any:
        """Return the client of this thread."""
        if "client" not in vars(self._own):
            self._own.client = self._make_client()
        return self._own.client

    def _hidden(self, text: str) -> str:
        """Return a text of the server without the key, which some servers repeat."""
        return text.replace(self._key, "***") if self._key else text

    def _take_turn(self) -> None:
        """Wait until the limits allow another request."""
        pace = 0.0 if self.config.per_minute is None else 60.0 / self.config.per_minute
        with self._lock:
            now = self._clock()
            start = max(now, self._free_at)
            self._free_at = start + pace if pace else self._free_at
        # The turn is reserved under the lock and waited for outside, so that other threads reserve theirs meanwhile.
        if start > now:
            self._wait(start - now)

    def _hold(self, seconds: float) -> None:
        """Send nothing for some seconds, in all threads: a rate limit holds for the key and not for one request."""
        with self._lock:
            self._free_at = max(self._free_at, self._clock() + seconds)

    def _count(self, **counts: int) -> None:
        with self._lock:
            self._ledger += Ledger(**counts)


def read_answer(body: bytes) -> Answer:
    """Return the answer in a response body; an empty one with reason ``"malformed"`` if it is no chat completion.

    >>> read_answer(b'{"choices": [{"message": {"content": "Up"}, "finish_reason": "stop"}]}')
    Answer(text='Up', finish_reason='stop', prompt_tokens=0, cached_tokens=0, sampled_tokens=0)
    >>> read_answer(b"<html>").finish_reason
    'malformed'
    """
    try:
        data = json.loads(body)
        choice = data["choices"][0]
        content, reason = choice["message"].get("content"), choice.get("finish_reason")
        calls = _calls_in(choice["message"].get("tool_calls"))
        usage = data.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        counts = [usage.get("prompt_tokens"), details.get("cached_tokens"), usage.get("completion_tokens")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Answer("", "malformed")
    tokens = [count if type(count) is int and count >= 0 else 0 for count in counts]
    # A refusal, or a tool's call, has no content.
    if not isinstance(content, str | None):
        return Answer("", "malformed", *tokens)
    return Answer((content or "") + calls, shown(reason) if not isinstance(reason, str) else reason, *tokens)


def _calls_in(calls: Any) -> str:
    """Return the calls of tools in a message as text; their arguments are a text of JSON, also where it is damaged."""
    functions = [call["function"] for call in calls or ()]
    return "\n".join(write_hermes(function["name"], str(function["arguments"])) for function in functions)


def retry_after(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, which has a number or a date; None for anything else.

    >>> retry_after("1.5"), retry_after("soon"), retry_after(None)
    (1.5, None, None)
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except ValueError:
            return None
    return min(max(seconds, 0.0), 10 * LONGEST_WAIT) if seconds == seconds else None


class ApiPolicy:
    """Ask a server for the next turns of many trees at once, a request for every sample.

    A server cannot be made to begin an answer with given words: `Prompt.forced` is left to the instructions, and an
    answer is the model's text without changes.

    Args:
        api: The server.
        prompt: The words around observations.
        history: How much of the episode a conversation repeats.
        temperature: Of sampling.
        max_tokens: Longest answer.

    Raises:
        ConfigError: The prompt is for tools, and there are none.
    """

    def __init__(
        self, api: ChatApi, prompt: Prompt, history: History, *, temperature: float, max_tokens: int = 400
    ) -> None:
        if prompt.tools == ():
            raise ConfigError("the environment has no tools that a model can call: use another prompt")
        self.api = api
        self.prompt = prompt
        self.history = history
        self.temperature = temperature
        self.max_tokens = max_tokens
        # Kept over calls, because each thread keeps its connection.
        self._threads = ThreadPoolExecutor(api.config.at_once)

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return sampled candidates for every wish, in order; what they cost is charged to their trees.

        Raises:
            EngineFailed: The server refuses to answer, or does not.
            PromptTooLong: A conversation is longer than the model's context.
        """
        conversations = [self.messages(tree, wish.node) for tree, wish in requests]
        asked = [
            [self._threads.submit(self._ask, messages, seed) for seed in row]
            for messages, row in zip(conversations, sample_seeds(requests), strict=True)
        ]
        try:
            answers = [[request.result() for request in row] for row in asked]
        except BaseException:
            # Requests that were not sent yet are dropped, and those that were are waited for.
            wait([request for row in asked for request in row if not request.cancel()])
            raise
        for (tree, _), row in zip(requests, answers, strict=True):
            tree.charge(_cost(row))
        return [[Candidate(answer.text) for answer in row] for row in answers]

    def messages(self, tree: Tree, node: int) -> list[dict[str, Any]]:
        """Return the conversation that leads to the next turn at a node."""
        first, *rest = path_from(tree, node, self.history.first(tree.nodes[node].depth))
        system = [{"role": "system", "content": self.prompt.system}] if self.prompt.system else []
        messages: list[dict[str, Any]] = [*system, {"role": "user", "content": self.prompt.turn(tree.nodes[first])}]
        for index in rest:
            messages += self._turn(tree.nodes[index])
        return messages

    def _turn(self, node: Node) -> list[dict[str, Any]]:
        """Return the messages of an answer and of what followed."""
        text, result = str(node.candidate.text), self.prompt.turn(node)
        call = None if self.prompt.tools is None else read_call(text, "hermes")
        if call is None or call.reason:
            # Servers accept the result of a tool only after a call.
            return [{"role": "assistant", "content": text}, {"role": "user", "content": result}]
        name = f"call_{node.depth}"
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        calls = [{"id": name, "type": "function", "function": function}]
        before = text.rpartition("<tool_call>")[0]
        return [
            {"role": "assistant", "content": before or None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": name, "content": result},
        ]

    def _ask(self, messages: list[dict[str, Any]], seed: int) -> Answer:
        tools = self.prompt.tools or ()
        return self.api.ask(messages, seed=seed, temperature=self.temperature, max_tokens=self.max_tokens, tools=tools)


def _cost(row: Sequence[Answer]) -> Budget:
    return Budget(
        sampled_tokens=sum(answer.sampled_tokens for answer in row),
        prompt_tokens=sum(answer.prompt_tokens for answer in row),
        prompt_tokens_saved=sum(answer.cached_tokens for answer in row),
    )
