"""Scripted players of retrieval QA: ceilings and floors for trained agents, and teachers of a small model.

They know labels; each docstring states which. They answer only with text from passages that were shown to them, except
yes and no, which no passage holds. Do not train on their turns without stating so.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from tsr_gym.state_env import left
from tsr_gym.teaching import Teaching
from tsr_gym_envs.retrieval_qa.contract import Question, Retriever
from tsr_gym_envs.retrieval_qa.grading import contains_answer
from tsr_gym_envs.retrieval_qa.plan import queries_of
from tsr_gym_envs.retrieval_qa.protocol import NO_ACTION, NOTHING, compact_turn, plain, write_answer, write_search
from tsr_gym_envs.retrieval_qa.protocol import Protocol as Wire
from tsr_gym_envs.retrieval_qa.questions import QuestionSet, Sources
from tsr_gym_envs.retrieval_qa.state import RetrievalState

# The answer of a player that has read none.
UNKNOWN = "unknown"
_TAG = re.compile(r"</?\w{1,40}>")
_REFERENCE = re.compile(r"#(\d+)")
_UNSAID = frozenset({"yes", "no"})


class Player(Protocol):
    """Plays one episode."""

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """Return the text of the next turn."""
        ...


class QuestionResult(NamedTuple):
    """How an episode ended.

    Attributes:
        exact_match: The answer is a golden one.
        answer_seen: A golden answer stood in the passages.
        supporting_recall: Share of the supporting passages that were shown; None where they are unknown.
        searches: Searches carried out.
    """

    exact_match: bool
    answer_seen: bool
    supporting_recall: float | None
    searches: int


class ScriptedSearcher:
    """Follow a question's decomposition, with a perfect reader.

    It knows the queries of the decomposition, and recognises the answer to a step where it stands in a passage that it
    was shown. A reference such as ``#1`` is filled with what was read, never with what was not: then it searches for
    the question instead. It answers once every step's answer was read. So it fails exactly where retrieval does. Of a
    question without a decomposition it knows what `SingleQuery` knows.
    """

    def __init__(self, question: Question, protocol: Wire) -> None:
        self._question, self._protocol = question, protocol
        self._texts: list[str] = []
        self._searches = 0

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """Return the text of the next turn."""
        if self._searches:
            self._texts.append(legible(observation))
        question = self._question
        if self._searches < max(1, len(question.steps)) and info["turns_left"] > 1:
            self._searches += 1
            return write_search(next_query(question, self._texts), self._protocol)
        if not question.steps:
            return write_answer(_answer(question, self._texts, info), self._protocol)
        knows_all = None not in answers_read(question, self._texts)
        return write_answer(golden_read(question, self._texts) if knows_all else UNKNOWN, self._protocol)


class _Queries:
    """Carry out given searches, then answer if an answer is there."""

    def __init__(self, question: Question, protocol: Wire, queries: Sequence[str]) -> None:
        self._question, self._protocol, self._queries = question, protocol, tuple(queries)
        self._texts: list[str] = []
        self._searches = 0

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """Return the text of the next turn."""
        if self._searches:
            self._texts.append(legible(observation))
        if self._searches < len(self._queries) and info["turns_left"] > 1:
            self._searches += 1
            return write_search(self._queries[self._searches - 1], self._protocol)
        return write_answer(_answer(self._question, self._texts, info), self._protocol)


class SingleQuery(_Queries):
    """Search for the question as it is, once, and answer if an answer is there: an upper bound by labels."""

    def __init__(self, question: Question, protocol: Wire) -> None:
        super().__init__(question, protocol, (question.question,))


class Oracle(_Queries):
    """Carry out the searches of `best_searches` and answer if an answer is there: what k searches can reach at all.

    Args:
        question: The question.
        protocol: How turns are written.
        queries: The searches.
    """


def answers_read(question: Question, texts: Sequence[str]) -> tuple[str | None, ...]:
    """Return the answer of each step where it stands in a text; None where it does not."""
    return tuple(answer if _stands_in(texts, answer) else None for _, answer in question.steps)


def next_query(question: Question, texts: Sequence[str]) -> str:
    """Return the scripted searcher's next query after some observations, one per search."""
    if not question.steps:
        return question.question
    read = answers_read(question, texts)
    query = question.steps[len(texts)][0]
    wanted = {int(number) for number in _REFERENCE.findall(query)} & set(range(1, len(texts) + 1))
    if any(read[number - 1] is None for number in wanted):
        return question.question
    return _REFERENCE.sub(lambda match: read[int(match[1]) - 1] or "" if int(match[1]) in wanted else match[0], query)


def best_searches(
    question: Question, retriever: Retriever, titles: Mapping[str, str], *, max_searches: int, top_k: int
) -> tuple[str, ...]:
    """Return the searches that reach most: a golden answer first, then supporting passages, with as few as possible.

    Every set of candidates is tried: the question, the titles of its supporting passages, and the queries of its
    decomposition with the right answers filled in.

    Args:
        question: The question.
        retriever: What is searched.
        titles: Title of each supporting passage, by id.
        max_searches: Most searches.
        top_k: Passages per search.
    """
    supporting = [titles[name] for name in question.supporting if name in titles]
    candidates = list(dict.fromkeys((question.question, *supporting, *queries_of(question))))
    results = retriever.retrieve(candidates, top_k)
    is_unsaid = _UNSAID.issuperset(question.golden_answers)
    reached = [
        (
            frozenset(passage.id for passage in passages) & frozenset(question.supporting),
            any(contains_answer(passage.contents, question.golden_answers) for passage in passages),
        )
        for passages in results
    ]

    def worth(places: tuple[int, ...]) -> tuple[bool, int, int]:
        shown = frozenset().union(*(reached[place][0] for place in places))
        is_there = len(shown) == len(set(question.supporting)) if is_unsaid else any(reached[p][1] for p in places)
        return is_there, len(shown), -len(places)

    sizes = range(1, min(max_searches, len(candidates)) + 1)
    best = max((places for size in sizes for places in combinations(range(len(candidates)), size)), key=worth)
    return tuple(candidates[place] for place in best)


def play(env: gym.Env[Any, Any], question: Question, player: Player) -> QuestionResult:
    """Play one episode of a question and return its result."""
    options = {"question_id": question.id, "data_source": question.data_source}
    observation, info = env.reset(seed=0, options=options)
    ended = False
    while not ended:
        observation, _, terminated, truncated, info = env.step(player.act(observation, info))
        ended = terminated or truncated
    return QuestionResult(
        bool(info["exact_match"]), info["answer_turn"] > 0, info["supporting_recall"], int(info["searches"])
    )


def legible(observation: str) -> str:
    """Return an observation without its tags, and with the JSON that some protocols put around the passages read.

    Answers are compared without punctuation, so a remaining tag would merge with the adjacent word.
    """
    text = _TAG.sub(" ", observation)
    start, end = text.find("{"), text.rfind("}")
    try:
        document = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return text
    return str(document["result"]) if isinstance(document, dict) and "result" in document else text


def _answer(question: Question, texts: Sequence[str], info: Mapping[str, Any]) -> str:
    """Return a golden answer that was read; yes or no where all supporting passages were."""
    if _UNSAID.issuperset(question.golden_answers):
        return question.golden_answers[0] if info["supporting_recall"] == 1 else UNKNOWN
    return golden_read(question, texts)


def golden_read(question: Question, texts: Sequence[str]) -> str:
    """Return a golden answer that stands in a text; `UNKNOWN` where none does."""
    return next((gold for gold in question.golden_answers if _stands_in(texts, gold)), UNKNOWN)


def _stands_in(texts: Sequence[str], answer: str) -> bool:
    """Return whether a text holds an answer; yes and no stand nowhere and need not."""
    return answer.lower() in _UNSAID or any(contains_answer(text, answer) for text in texts)


# Longest turn, in words.
MAX_TOKENS = 32
PERMUTE = 0.85
# How likely the guesser searches while it may.
P_SEARCH = 0.5
# At larger rates all methods reach the same result after a few updates.
LEARN = {"algorithm": "grpo", "lr": 1.5e-4, "filter": "mixed_success", "groups": 16, "trajectories": 8, "minibatch": 16}
FORM = {"observation_mode": "compact", "top_k": 1}
# The default world in which a small model learns to read, and its turns with searches.
WORLD = {"entities": 1000, "questions": 3000, "hops": [1, 2]}
MAX_TURNS = 3
_MARKS = ("ask", "?", "doc", "|", "<search>", "</search>", "<answer>", "</answer>", "yes", "no", UNKNOWN, NOTHING)
_NAME = re.compile(r"(?<![.?!:\"] )(?<!^)\b[A-Z]\w*")


def qa_teaching(sources: Sources) -> Teaching | None:
    """Return the `Teaching` of search for a small model; None where no question has a decomposition.

    The vocabulary is known only for generated worlds.
    """
    steps = [len(question.steps) for question in sources.questions.questions]
    if not any(steps):
        return None
    words, names = _words(sources.world, sources.questions) if sources.world else (None, frozenset())
    world = WORLD if sources.is_default else {}
    return Teaching(
        teacher_turn=teacher_turn,
        poor_turn=poor_turn,
        accepts=has_read_all,
        env_settings={**FORM, "max_turns": MAX_TURNS if sources.is_default else max(MAX_TURNS, *steps), **world},
        history="full",
        max_tokens=MAX_TOKENS,
        words=words,
        permutable=names,
        permute=PERMUTE,
        copying=True,
        learn=LEARN,
    )


@lru_cache(maxsize=4)
def _words(world: Path, questions: QuestionSet) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the plain words of a world, and those of them that are names or numbers and nothing else."""
    with open(world / "corpus.jsonl", encoding="utf-8") as rows:
        texts = [json.loads(row)["contents"] for row in rows]
    for question in questions.questions:
        texts += [question.question, *question.golden_answers, *queries_of(question)]
    vocabulary = {word for text in texts for word in plain(text).split()}
    named = {word.lower() for text in texts for word in _NAME.findall(text)}
    # A word that also occurs in lower case is not only a name.
    small = {word for text in texts for word in re.findall(r"\b[a-z]\w*", text)}
    names = {word for word in vocabulary if (word in named and word not in small) or any(map(str.isdecimal, word))}
    marks = {*_MARKS, *NO_ACTION.split()}
    return tuple(sorted(vocabulary | marks)), frozenset(names - marks)


def teacher_turn(env: Any, rng: np.random.Generator) -> str:
    """Return the next turn of a reader that knows the decomposition and writes only text that it has read.

    It acts as `ScriptedSearcher`, and searches for the question itself if an answer is still unread.
    """
    question, protocol, texts = env.question(env.state), env.settings.protocol, texts_read(env, env.state)
    turns_left, _ = left(env)
    if len(texts) < max(1, len(question.steps)) and turns_left != 1:
        return _in_form(env, write_search(next_query(question, texts), protocol))
    if None not in answers_read(question, texts):
        return _in_form(env, write_answer(golden_read(question, texts), protocol))
    whole = _in_form(env, write_search(question.question, protocol))
    is_new = all(turn.text != whole for turn in env.state.turns)
    return whole if is_new and turns_left != 1 else _in_form(env, write_answer(UNKNOWN, protocol))


def poor_turn(env: Any, rng: np.random.Generator) -> str:
    """Return a turn of a guesser: it searches for random words of the question, or answers random words read last."""
    protocol, texts = env.settings.protocol, texts_read(env, env.state)
    turns_left, _ = left(env)
    asked = plain(env.question(env.state).question).split()
    if turns_left != 1 and (not texts or rng.random() < P_SEARCH):
        return _in_form(env, write_search(_some(asked, rng), protocol))
    read = plain(texts[-1]).split() if texts else []
    return _in_form(env, write_answer(_some(read or asked, rng), protocol))


def _some(words: list[str], rng: np.random.Generator) -> str:
    """Return one to three adjacent words; of none, a word that stands for it."""
    words = words or [NOTHING]
    first = int(rng.integers(len(words)))
    return " ".join(words[first : first + int(rng.integers(1, 4))])


def _in_form(env: Any, turn: str) -> str:
    return compact_turn(turn, env.settings.protocol) if env.settings.observation_mode == "compact" else turn


def has_read_all(env: Any) -> bool:
    """Return whether an episode ended with a right answer, after all that leads to it was shown."""
    state: RetrievalState = env.state
    question, texts = env.question(state), texts_read(env, state)
    if not env.is_success(state) or None in answers_read(question, texts):
        return False
    # No passage contains yes or no as an answer, so the supporting passages decide.
    found_all = not question.supporting or len(state.found) == len(question.supporting)
    return golden_read(question, texts) != UNKNOWN and (found_all or question.golden_answers[0] not in ("yes", "no"))


def texts_read(env: Any, state: RetrievalState) -> list[str]:
    """Return the observation of each search, without tags."""
    observations = (env.searches.find(turn.queries).observation for turn in state.turns if turn.kind == "search")
    return [legible(text) for text in observations]
