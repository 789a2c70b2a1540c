"""Protocol: the text format in which an agent searches and answers, and in which passages are shown to it.

One frozen value holds the whole format; the presets follow Search-R1 (arXiv 2503.09516), SkyRL and verl in our own
words. Invariant: every function here is a pure function of text and protocol, linear in the text, and never raises.
"""

import json
import string
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from re import finditer
from typing import Any, Literal, NamedTuple

from tsr_gym import ConfigError
from tsr_gym.optional import load
from tsr_gym_envs.retrieval_qa.contract import Passage


@lru_cache(maxsize=64)
def length_of(name: str) -> Callable[[str], int]:
    """Return the function that measures a text: ``"words"``, ``"characters"`` or ``"package.module:name"``.

    Raises:
        ConfigError: There is no such function.
    """
    measures: dict[str, Callable[[str], int]] = {"words": lambda text: len(text.split()), "characters": len}
    if name in measures:
        return measures[name]
    try:
        loaded: Any = load(name)
    except (ValueError, ImportError, KeyError) as error:
        raise ConfigError(f"wanted length of {sorted(measures)} or 'package.module:name', got {name!r}") from error
    measure: Callable[[str], int] = loaded
    return measure


def shorten(text: str, limit: int | None, length: str = "words") -> str:
    """Return the longest beginning of a text that ends with a whole word and is not longer than `limit`.

    A first word that is too long by itself is cut inside. The measure may not fall as a text grows.

    >>> shorten("One two  three", 2), shorten("One two  three", 7, "characters"), shorten("Onetwo", 3, "characters")
    ('One two', 'One two', 'One')
    """
    if limit is None:
        return text
    measure = length_of(length)
    if measure(text) <= limit:
        return text
    ends = [word.end() for word in finditer(r"\S+", text)]
    kept = bisect_right(ends, limit, key=lambda end: measure(text[:end]))
    if kept:
        return text[: ends[kept - 1]]
    return text[: bisect_right(range(1, len(text)), limit, key=lambda end: measure(text[:end]))]


MAX_QUERIES = 8


class RetrievalAction(NamedTuple):
    """The action of a turn: the queries of a search, an answer, or nothing with the reason."""

    kind: Literal["search", "answer", "invalid"]
    queries: tuple[str, ...] = ()
    answer: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    r"""How agent and environment write to each other.

    Attributes:
        instructions: The task in a few sentences; an agent reads them before the question.
        think_tag: Tag of reasoning; only format rewards look at it.
        search_tag: Tag of a search.
        answer_tag: Tag of the final answer.
        information_tag: Tag of what was found; only format rewards look at it, `observation` writes it.
        tool: Name of the tool where a search is a JSON tool call with a list of queries, ``{"name": tool, "arguments":
            {"query_list": [...]}}``; "" where the query itself stands in the tag. Up to `MAX_QUERIES` queries count.
        cut: Where a turn's text is cut off: ``"search"`` after the first closing search tag, else after the first
            closing answer tag; ``"earliest"`` after whichever comes first; ``"never"``.
        both: Which action counts where a text, once cut, holds a search and an answer: the ``"first"``, always the
            ``"search"`` or always the ``"answer"``; or none, nor where one of them comes twice: ``"invalid"``. With
            ``"first"`` the first answer of several counts, else the last.
        document: One hit; ``{number}`` from 1, ``{title}`` in quotation marks and ``{name}`` without, ``{text}`` and
            ``{contents}``, Search-R1's ``"Title"\ntext``.
        strip: Whether blanks around all documents are removed.
        between: What stands between the hits of several queries.
        escape: ``"json"`` for ``{"result": documents}`` in ASCII, ``"unicode"`` for the same with all letters, "" for
            the documents as they are.
        observation: What is shown after a search; ``{documents}``.
        invalid: What is shown after a turn that asks for nothing.
        ends_on_invalid: Whether such a turn ends the episode.
        extra_turn: Whether the turns of an episode are followed by one without search, for the answer; otherwise the
            last turn itself has no search.
        max_document_length: Longest text of a hit; None for as long as it is. Each is cut by itself, at a word, so no
            hit and no closing tag is lost. The default leaves passages of 100 words as they are.
        length: What measures it: ``"words"``, ``"characters"`` or your own function from text to int, as
            ``"package.module:name"``.
    """

    instructions: str
    think_tag: str = "think"
    search_tag: str = "search"
    answer_tag: str = "answer"
    information_tag: str = "information"
    tool: str = ""
    cut: Literal["search", "earliest", "never"] = "search"
    both: Literal["first", "search", "answer", "invalid"] = "first"
    document: str = "Doc {number}(Title: {title}) {text}\n"
    strip: bool = True
    between: str = "\n---\n"
    escape: Literal["", "json", "unicode"] = ""
    observation: str = "\n\n<information>{documents}</information>\n\n"
    invalid: str = ""
    ends_on_invalid: bool = False
    extra_turn: bool = True
    max_document_length: int | None = 150
    length: str = "words"

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("cut", self.cut, ("search", "earliest", "never")),
            ("both", self.both, ("first", "search", "answer", "invalid")),
            ("escape", self.escape, ("", "json", "unicode")),
        ):
            if value not in choices:
                raise ConfigError(f"wanted {name} of {list(choices)}, got {value!r}")
        if self.max_document_length is not None and self.max_document_length < 1:
            raise ConfigError(f"wanted max_document_length >= 1 or None, got {self.max_document_length}")
        try:
            self.document.format(number=1, title="", name="", text="", contents="")
            self.observation.format(documents="")
        except (KeyError, IndexError, ValueError) as error:
            raise ConfigError(
                "wanted a document of {number}, {title}, {name}, {text}, {contents} and an observation of {documents}, "
                f"got {self.document!r} and {self.observation!r} ({error!r})"
            ) from error


def inside(text: str, tag: str) -> Iterator[tuple[int, str]]:
    """Yield where each ``<tag>...</tag>`` of a text begins, and what it holds, from left to right.

    >>> [content for _, content in inside("<a>1<a>2</a>3</a> <a>4</a>", "a")]
    ['1<a>2', '4']
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.find(opening)
    while start >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            return
        yield start, text[start + len(opening) : end]
        start = text.find(opening, end + len(closing))


def cut_turn(text: str, protocol: Protocol) -> str:
    """Return a turn's text up to where the protocol stops reading."""
    if protocol.cut == "never":
        return text
    ends = [
        place + len(tag)
        for tag in (f"</{protocol.search_tag}>", f"</{protocol.answer_tag}>")
        if (place := text.find(tag)) >= 0
    ]
    if not ends:
        return text
    return text[: ends[0] if protocol.cut == "search" else min(ends)]


def parse(text: str, protocol: Protocol) -> RetrievalAction:
    """Return the action in the text of a turn that was already cut."""
    searches = list(inside(text, protocol.search_tag))
    answers = list(inside(text, protocol.answer_tag))
    if not searches and not answers:
        return _nothing(f"the turn holds neither <{protocol.search_tag}> nor <{protocol.answer_tag}>")
    if protocol.both == "invalid" and len(searches) + len(answers) != 1:
        return _nothing(f"wanted one search or one answer, got {len(searches) + len(answers)}")
    if protocol.both == "first":
        wants_answer = not searches or (bool(answers) and answers[0][0] < searches[0][0])
    else:
        wants_answer = not searches or (bool(answers) and protocol.both == "answer")
    if wants_answer:
        return RetrievalAction("answer", (), answers[0 if protocol.both == "first" else -1][1].strip())
    return _search(searches[0][1], protocol)


def _nothing(reason: str) -> RetrievalAction:
    return RetrievalAction("invalid", reason=reason)


def _search(content: str, protocol: Protocol) -> RetrievalAction:
    if not protocol.tool:
        return RetrievalAction("search", (content.strip(),))
    no_call = f'the search is no call of {protocol.tool!r} with a list of texts as "query_list"'
    try:
        call = json.loads(content)
    # Deeply nested brackets exhaust the reader's recursion.
    except (ValueError, RecursionError):
        return _nothing(no_call)
    arguments = call.get("arguments") if isinstance(call, dict) and call.get("name") == protocol.tool else None
    queries = arguments.get("query_list") if isinstance(arguments, dict) else None
    if not isinstance(queries, list) or not queries or not all(isinstance(query, str) for query in queries):
        return _nothing(no_call)
    return RetrievalAction("search", tuple(query.strip() for query in queries[:MAX_QUERIES]))


def write_search(query: str, protocol: Protocol) -> str:
    """Return the text with which an agent searches for one query."""
    if protocol.tool:
        call = json.dumps({"name": protocol.tool, "arguments": {"query_list": [query]}}, ensure_ascii=False)
        query = f"\n{call}\n"
    return f"<{protocol.search_tag}>{query}</{protocol.search_tag}>"


def write_answer(answer: str, protocol: Protocol) -> str:
    """Return the text with which an agent answers."""
    return f"<{protocol.answer_tag}>{answer}</{protocol.answer_tag}>"


class Shown(NamedTuple):
    """The observation of a search: the whole text, and the title and text of each document in it."""

    observation: str
    documents: tuple[str, ...]


def show(hits: list[list[Passage]], protocol: Protocol, max_characters: int) -> Shown:
    """Return the observation of a search.

    Args:
        hits: The passages of each query.
        protocol: How they are written.
        max_characters: Longest observation; documents are halved until it fits.
    """
    cap = max_characters
    while True:
        shown = _show(hits, protocol, cap)
        if len(shown.observation) <= max_characters or not cap:
            return shown
        cap //= 2


def _show(hits: list[list[Passage]], protocol: Protocol, max_text: int) -> Shown:
    blocks, documents = [], []
    for passages in hits:
        block = ""
        for number, passage in enumerate(passages, start=1):
            cut = passage._replace(
                title=passage.title[:max_text],
                text=shorten(passage.text, protocol.max_document_length, protocol.length)[:max_text],
            )
            documents.append(f"{cut.title}\n{cut.text}")
            block += protocol.document.format(
                number=number, title=f'"{cut.title}"', name=cut.title, text=cut.text, contents=cut.contents.strip()
            )
        blocks.append(block.strip() if protocol.strip else block)
    text = protocol.between.join(blocks)
    if protocol.escape:
        text = json.dumps({"result": text}, ensure_ascii=protocol.escape == "json")
    return Shown(protocol.observation.format(documents=text), tuple(documents))


def make_protocol(given: str | Mapping[str, Any] | Protocol) -> Protocol:
    """Return the `Protocol` of a keyword.

    Args:
        given: The name of a preset; a mapping of fields with ``"preset"`` among them; or the protocol itself.

    Raises:
        ConfigError: The preset or a field is unknown, or a value impossible.
    """
    protocol = given if isinstance(given, Protocol) else _from_fields(given)
    # Not in the constructor: the bytes of a snapshot hold protocols, and reading them must import nothing.
    length_of(protocol.length)
    return protocol


def _from_fields(given: str | Mapping[str, Any]) -> Protocol:
    changes = dict(given) if isinstance(given, Mapping) else {"preset": given}
    name = changes.pop("preset", "search-r1")
    if name not in PROTOCOLS:
        raise ConfigError(f"wanted a protocol of {sorted(PROTOCOLS)}, a mapping or a Protocol, got {name!r}")
    names = [field.name for field in fields(Protocol)]
    if unknown := sorted(set(changes) - set(names)):
        raise ConfigError(f"unknown fields {unknown} of a protocol; known: {names}")
    return replace(PROTOCOLS[name], **changes)


# The graders that Search-R1 publishes read the prompt too: its mention of the answer tags and its example are two
# answers to them, which the reward "search-r1" reproduces. So both stand here, and the mention in `invalid` as well.
_SEARCH_R1 = Protocol(
    instructions=(
        "Answer the question below. Whenever you have read something new, think about it first, between <think> and "
        "</think>. If you then lack a piece of knowledge, ask a search engine by writing <search> your query "
        "</search>; the best passages come back between <information> and </information>. You may search several "
        "times. Once you know enough, write the final answer between <answer> and </answer>, short and without "
        "explanation. For example, <answer> Beijing </answer>."
    ),
    invalid=(
        "\nThat was no action that I can take. If I want to search, I write my query between <search> and </search>. "
        "If I want to give the final answer, I write it between <answer> and </answer>. Let me try again.\n"
    ),
)
PROTOCOLS: Mapping[str, Protocol] = {
    "search-r1": _SEARCH_R1,
    "skyrl": replace(
        _SEARCH_R1,
        cut="earliest",
        both="answer",
        document="Doc {number}: {contents}\n",
        strip=False,
        escape="json",
        observation="\n<information>{documents}</information>\n",
        invalid="\n<information></information>\n",
        extra_turn=False,
    ),
    "verl": Protocol(
        instructions=(
            "Answer the question below. Think between <think> and </think> whenever you have read something new. If "
            "you lack a piece of knowledge, call the tool `search`, which takes a list of queries, by writing "
            '<tool_call>{"name": "search", "arguments": {"query_list": ["your query"]}}</tool_call>; the best '
            "passages come back in <tool_response> tags. You may call it several times. Once you know enough, write "
            "the final answer between <answer> and </answer>, short and without explanation. For example, "
            "<answer> Beijing </answer>."
        ),
        search_tag="tool_call",
        information_tag="tool_response",
        tool="search",
        cut="never",
        both="search",
        document="Doc {number} (Title: {title})\n{text}\n\n",
        escape="unicode",
        observation="\n<tool_response>\n{documents}\n</tool_response>\n",
        invalid="",
        ends_on_invalid=True,
        extra_turn=False,
    ),
}


# The separators of an observation's parts and the characters of tags.
_SIGNS = str.maketrans(dict.fromkeys("<>|", " "))
# The observations after a search without a hit, and after an invalid turn.
NOTHING, NO_ACTION = "nothing", "no action"


def plain(text: str) -> str:
    """Return a text as lower-case words between blanks, without the signs around them.

    >>> plain("The film 'Larkwell (1,105 metres)', by J. O-Brien")
    'the film larkwell 1,105 metres by j o-brien'
    """
    # Grading ignores exactly this punctuation, so the plain answer earns the same.
    stripped = (word.strip(string.punctuation) for word in text.lower().translate(_SIGNS).split())
    return " ".join(word for word in stripped if word)


def plain_passage(passage: Passage) -> Passage:
    """Return a passage with plain title and text."""
    return passage._replace(title=plain(passage.title), text=plain(passage.text))


def compact_protocol(protocol: Protocol) -> Protocol:
    """Return a protocol with its tags and rules, whose observations hold no more than the passages.

    Raises:
        ConfigError: Searches are calls of a tool, which need signs.
    """
    if protocol.tool:
        raise ConfigError(
            "compact texts hold words and tags alone: wanted a protocol without tool calls, such as 'search-r1', got "
            f"the tool {protocol.tool!r}"
        )
    return replace(
        protocol,
        instructions="",
        document="doc {name} | {text} ",
        strip=True,
        between=" ",
        escape="",
        observation="{documents}",
        invalid=NO_ACTION,
    )


def compact_turn(turn: str, protocol: Protocol) -> str:
    """Return a turn in plain words.

    >>> from tsr_gym_envs.retrieval_qa.protocol import PROTOCOLS
    >>> compact_turn("<search>Who led Larkwell?</search>", PROTOCOLS["search-r1"])
    '<search> who led larkwell </search>'
    """
    action = parse(turn, protocol)
    if action.kind == "answer":
        return write_answer(f" {plain(action.answer)} ", protocol)
    return write_search(f" {plain(' '.join(action.queries))} ", protocol)
