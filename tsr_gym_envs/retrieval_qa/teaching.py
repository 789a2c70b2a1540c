"""Who teaches a small model to search: a reader who follows a question's decomposition, and one who guesses."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym.state_env import left
from tsr_gym.teaching import Teaching
from tsr_gym_envs.retrieval_qa.compact import NO_ACTION, NOTHING, compact_turn, plain
from tsr_gym_envs.retrieval_qa.plan import queries_of
from tsr_gym_envs.retrieval_qa.protocol import write_answer, write_search
from tsr_gym_envs.retrieval_qa.question_set import QuestionSet
from tsr_gym_envs.retrieval_qa.searcher import UNKNOWN, answers_read, golden_read, legible, next_query
from tsr_gym_envs.retrieval_qa.sources import Sources
from tsr_gym_envs.retrieval_qa.state import RetrievalState

# Longest turn, in words.
MAX_TOKENS = 32
PERMUTE = 0.85
# How likely the guesser searches while it may.
P_SEARCH = 0.5
# At larger rates all methods end alike after a few updates.
LEARN = {"algorithm": "grpo", "lr": 1.5e-4, "filter": "mixed_success", "groups": 16, "trajectories": 8, "minibatch": 16}
FORM = {"observation_mode": "compact", "top_k": 1}
# The world in which a small model learns to read, where nobody wants another one; and its turns with searches.
WORLD = {"entities": 1000, "questions": 3000, "hops": [1, 2]}
MAX_TURNS = 3
_SIGNS = ("ask", "?", "doc", "|", "<search>", "</search>", "<answer>", "</answer>", "yes", "no", UNKNOWN, NOTHING)
_NAME = re.compile(r"(?<![.?!:\"] )(?<!^)\b[A-Z]\w*")


def qa_teaching(sources: Sources) -> Teaching | None:
    """Return how a small model is taught to search; None where no question has a decomposition.

    Words are only known of generated worlds.
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
    known = {word for text in texts for word in plain(text).split()}
    named = {word.lower() for text in texts for word in _NAME.findall(text)}
    # A word that is written small somewhere means something besides.
    small = {word for text in texts for word in re.findall(r"\b[a-z]\w*", text)}
    names = {word for word in known if (word in named and word not in small) or any(map(str.isdecimal, word))}
    signs = {*_SIGNS, *NO_ACTION.split()}
    return tuple(sorted(known | signs)), frozenset(names - signs)


def teacher_turn(env: Any, rng: np.random.Generator) -> str:
    """Return the next turn of a reader who knows what to look for and says only what it has read.

    As `searcher.ScriptedSearcher`, and if that leaves something unread, it searches for the question itself.
    """
    question, protocol, texts = env.question(env.state), env.settings.protocol, texts_read(env, env.state)
    turns_left, _ = left(env)
    if len(texts) < max(1, len(question.steps)) and turns_left != 1:
        return _said(env, write_search(next_query(question, texts), protocol))
    if None not in answers_read(question, texts):
        return _said(env, write_answer(golden_read(question, texts), protocol))
    whole = _said(env, write_search(question.question, protocol))
    is_new = all(turn.text != whole for turn in env.state.turns)
    return whole if is_new and turns_left != 1 else _said(env, write_answer(UNKNOWN, protocol))


def poor_turn(env: Any, rng: np.random.Generator) -> str:
    """Return the next turn of somebody who searches for any words of the question and answers any words read last."""
    protocol, texts = env.settings.protocol, texts_read(env, env.state)
    turns_left, _ = left(env)
    asked = plain(env.question(env.state).question).split()
    if turns_left != 1 and (not texts or rng.random() < P_SEARCH):
        return _said(env, write_search(_some(asked, rng), protocol))
    read = plain(texts[-1]).split() if texts else []
    return _said(env, write_answer(_some(read or asked, rng), protocol))


def _some(words: list[str], rng: np.random.Generator) -> str:
    """Return one to three adjacent words; of none, a word that stands for it."""
    words = words or [NOTHING]
    first = int(rng.integers(len(words)))
    return " ".join(words[first : first + int(rng.integers(1, 4))])


def _said(env: Any, turn: str) -> str:
    return compact_turn(turn, env.settings.protocol) if env.settings.observation_mode == "compact" else turn


def has_read_all(env: Any) -> bool:
    """Return whether an episode ended with a right answer, after all that leads to it was shown."""
    state: RetrievalState = env.state
    question, texts = env.question(state), texts_read(env, state)
    if not env.is_success(state) or None in answers_read(question, texts):
        return False
    # Nothing that is shown says yes or no.
    found_all = not question.supporting or len(state.found) == len(question.supporting)
    return golden_read(question, texts) != UNKNOWN and (found_all or question.golden_answers[0] not in ("yes", "no"))


def texts_read(env: Any, state: RetrievalState) -> list[str]:
    """Return what each search showed, without tags."""
    found = (env.searches.find(turn.queries).observation for turn in state.turns if turn.kind == "search")
    return [legible(text) for text in found]
