"""Grading: answers compared with golden answers, and the reward of a finished episode.

Answers are compared as SQuAD, Search-R1 and TSPO compare them. A reward is a pure function of the episode's transcript
and the golden answers; ``"search-r1"`` grades as the published code does, quirks included.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from tsr_gym import ConfigError
from tsr_gym_envs.retrieval_qa.protocol import inside

Match = Literal["boundary", "substring"]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
# Answers that token F1 takes as a whole; the first two also occur in any passage by chance.
_WHOLE = frozenset({"yes", "no", "noanswer"})
_ANYWHERE = frozenset({"yes", "no"})


def normalise(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and articles, words one blank apart (SQuAD).

    >>> normalise("The  Beatles' 'White Album'!")
    'beatles white album'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, golds: str | Sequence[str]) -> bool:
    """Return whether a prediction equals one of the golden answers once both are normalised; True counts as 1.

    >>> exact_match("the Beatles.", ["Beatles", "The Fab Four"])
    True
    """
    answer = normalise(prediction)
    return any(answer == gold for gold in _normalised(golds))


def token_f1(prediction: str, golds: str | Sequence[str]) -> float:
    """Return the F1 of the words that prediction and golden answer share, the best over all golden answers.

    Yes, no and "noanswer" earn only where both are the same. No shared word is 0, also where both are empty.

    >>> token_f1("the city of Paris", "Paris")
    0.5
    """
    answer = normalise(prediction)
    return max((_f1(answer, gold) for gold in _normalised(golds)), default=0.0)


def contains_answer(text: str, golds: str | Sequence[str], *, match: Match = "boundary") -> bool:
    """Return whether a golden answer occurs in a text, both normalised.

    Args:
        text: A passage, or several.
        golds: The golden answers.
        match: ``"boundary"`` wants the answer's words one after the other as whole words, and skips golden answers
            that prove nothing: yes, no, and those of at most one character. ``"substring"`` is Search-R1's rule: any
            substring and any golden answer, so that "no" is found in "nothing".

    >>> contains_answer("Nothing known.", "no"), contains_answer("Nothing known.", "no", match="substring")
    (False, True)
    """
    words, answers = normalise(text), _normalised(golds)
    if match == "substring":
        return any(gold in words for gold in answers)
    padded = f" {words} "
    return any(f" {gold} " in padded for gold in answers if len(gold) > 1 and gold not in _ANYWHERE)


def _normalised(golds: str | Sequence[str]) -> tuple[str, ...]:
    return _normalise_all((golds,) if isinstance(golds, str) else tuple(golds))


# The golden answers of a question are compared at every turn.
@lru_cache(maxsize=4096)
def _normalise_all(golds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(normalise, golds))


def _f1(answer: str, gold: str) -> float:
    if answer != gold and (answer in _WHOLE or gold in _WHOLE):
        return 0.0
    ours, theirs = answer.split(), gold.split()
    shared = sum((Counter(ours) & Counter(theirs)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(ours), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)


Tags = tuple[str, str, str, str]
SEARCH_R1_TAGS: Tags = ("think", "search", "information", "answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """How episodes are graded.

    With `structure` or `final` above 0 the rewards form Search-R1's ladder (v0.3). Structured means:
    thought and search in turn, at the end thought and answer, and nothing but blanks between the tags.

    | answer | structured | not structured |
    |---|---|---|
    | earns m by the metric | max(m, structure) | max(m - structure, final) |
    | earns 0 | structure, + retrieval where a passage held the answer | final |
    | none | - | 0 |

    Attributes:
        metric: ``"exact_match"`` (0 or 1) or ``"f1"``.
        structure: What a structured episode earns without a right answer, and an unstructured one loses with it.
        final: What any answer earns at least.
        retrieval: What evidence adds where the episode is structured and the answer wrong.
        published: Grade as the published code does, where four things differ. The whole text counts, prompt included,
            and the last of at least two answers in it; so a rollout that never answers is graded by the example in its
            prompt, or by the words between the answer tags in the text after an invalid turn, and earns `final` at
            least. With F1 no maximum is taken. Evidence is any substring.
    """

    metric: Literal["exact_match", "f1"] = "exact_match"
    structure: float = 0.0
    final: float = 0.0
    retrieval: float = 0.0
    published: bool = False

    def __post_init__(self) -> None:
        if self.metric not in ("exact_match", "f1"):
            raise ConfigError(f"wanted metric 'exact_match' or 'f1', got {self.metric!r}")

    @property
    def reads_transcript(self) -> bool:
        """Whether more than the answer counts."""
        return self.published or bool(self.structure or self.final or self.retrieval)


# Search-R1 v0.3 trains with .2, .1 and 0; Tree-GRPO (arXiv 2509.21240) puts F1 into the same ladder.
REWARDS: Mapping[str, Reward] = {
    "exact_match": Reward(),
    "f1": Reward(metric="f1"),
    "format": Reward(structure=0.2, final=0.1),
    "format-f1": Reward(metric="f1", structure=0.2, final=0.1),
    "search-r1": Reward(structure=0.2, final=0.1, published=True),
    "search-r1-em": Reward(published=True),
    "tree-grpo": Reward(metric="f1", structure=0.2, final=0.1, published=True),
}


class Transcript(NamedTuple):
    """The parts of an episode that grading reads.

    Attributes:
        prompt: What the agent read before its first turn.
        response: All its turns and the observations between them, up to the end of its last turn.
        answer: Its answer; None where it gave none.
        evidence: Whether a passage that it was shown holds a golden answer.
        tags: The protocol's tags of thought, search, information and answer.
    """

    prompt: str = ""
    response: str = ""
    answer: str | None = None
    evidence: bool = False
    tags: Tags = SEARCH_R1_TAGS


def grade(rule: Reward, transcript: Transcript, golds: tuple[str, ...]) -> float:
    """Return the reward of an episode."""
    if rule.published:
        text = f"<|im_start|>user\n{transcript.prompt}<|im_end|>\n<|im_start|>assistant\n{transcript.response}"
        return grade_published(rule, text, golds)
    if transcript.answer is None:
        return 0.0
    earned = _metric(rule, transcript.answer, golds)
    if not rule.reads_transcript:
        return earned
    if not is_structured(transcript.response, transcript.tags):
        return max(earned - rule.structure, rule.final)
    if earned:
        return max(earned, rule.structure)
    return rule.structure + (rule.retrieval if transcript.evidence else 0.0)


def grade_published(rule: Reward, text: str, golds: tuple[str, ...]) -> float:
    """Return the reward of Search-R1's published graders for the text of prompt and response (their `solution_str`).

    Without `structure` and `final` that is its exact-match grader (v0.1, v0.2), else the one with format rewards
    (v0.3), or with ``metric="f1"`` Tree-GRPO's.
    """
    answers = [content.strip() for _, content in inside(text, "answer")]
    answer = answers[-1] if len(answers) > 1 else None
    earned = 0.0 if answer is None else _metric(rule, answer, golds)
    if not rule.structure and not rule.final:
        return earned
    structured = is_structured_chat(text)
    if earned:
        return earned if structured else earned - rule.structure
    if structured:
        blocks = (content for _, content in inside(text, "information"))
        shown = any(contains_answer(block, golds, match="substring") for block in blocks)
        return rule.structure + (rule.retrieval if shown else 0.0)
    return 0.0 if answer is None else rule.final


def _metric(rule: Reward, answer: str, golds: tuple[str, ...]) -> float:
    return token_f1(answer, golds) if rule.metric == "f1" else float(exact_match(answer, golds))


_ASSISTANT = "<|im_start|>assistant"
# The moves of a small automaton that accepts well-formed responses; tags by their place in `Tags`, closing ones
# negative.
_MOVES = {
    ("start", 1): "in thought",
    ("read", 1): "in thought",
    ("in thought", -1): "thought",
    ("thought", 2): "in search",
    ("in search", -2): "searched",
    ("searched", 3): "in information",
    ("in information", -3): "read",
    ("thought", 4): "in answer",
    ("in answer", -4): "end",
}


def is_structured(response: str, tags: Tags = SEARCH_R1_TAGS) -> bool:
    """Return whether a response is (thought, search, information)*, thought, answer, with blanks between at most.

    >>> is_structured("<think>?</think> <answer>Paris</answer>"), is_structured("<answer>Paris</answer>")
    (True, False)
    """
    names = {f"<{tag}>": place for place, tag in enumerate(tags, start=1)}
    names |= {f"</{tag}>": -place for place, tag in enumerate(tags, start=1)}
    state = "start"
    for part in re.split(f"({'|'.join(map(re.escape, names))})", response):
        if part in names:
            state = _MOVES.get((state, names[part]), "nowhere")
        elif part.strip() and not state.startswith("in "):
            return False
    return state == "end"


def is_structured_chat(text: str) -> bool:
    """Return whether the text after the first ``<|im_start|>assistant`` is structured; False without that mark."""
    _, marker, response = text.partition(_ASSISTANT)
    return bool(marker) and is_structured(response)


def make_reward(given: str | Mapping[str, Any] | Reward) -> Reward:
    """Return the `Reward` of a keyword: a preset's name, a mapping of fields, or the reward itself.

    Raises:
        ConfigError: The preset or a field is unknown, or a value impossible.
    """
    if isinstance(given, Reward):
        return given
    if not isinstance(given, Mapping):
        if given not in REWARDS:
            raise ConfigError(f"wanted a reward of {sorted(REWARDS)}, a mapping or a Reward, got {given!r}")
        return REWARDS[given]
    names = [field.name for field in fields(Reward)]
    if unknown := sorted(set(given) - set(names)):
        raise ConfigError(f"unknown fields {unknown} of a reward; known: {names}")
    return Reward(**given)
