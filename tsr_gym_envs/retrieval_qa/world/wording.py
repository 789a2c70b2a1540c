"""Wording: a form in the words of a question, and the sub-questions by which it is answered.

A sub-question speaks of the answer to an earlier one as ``#1``, ``#2``, ..., as in MuSiQue's decompositions.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tsr_gym_envs.retrieval_qa.world.facts import Fact, Hop, Knowledge
from tsr_gym_envs.retrieval_qa.world.forms import Form, Solution
from tsr_gym_envs.retrieval_qa.world.grammar import grammar
from tsr_gym_envs.retrieval_qa.world.sentences import call, capital

# A comparison's frames: the winner as it is spoken of, and what stands before the question.
FRAMES = (
    ("the one {that} {more}", "Of {a} and {b}, "),
    ("the one {that} {more}", "Compare {a} with {b}: "),
    ("the one {that} {more}", "Consider {a} and {b}: "),
    ("whichever of {a} and {b} {more}", ""),
)


def word(
    form: Form, solution: Solution, knowledge: Knowledge, p_alias: float, rng: np.random.Generator
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return a question, and its decomposition as sub-questions with their answers as the passages say them."""

    def one(patterns: Sequence[str]) -> str:
        return patterns[int(rng.integers(len(patterns)))]

    calls = [_call(start, knowledge, p_alias, rng) for start in form.starts]
    if form.kind == "chain":
        text = _ask(form.hops, calls[0], one)
        return capital(text), tuple(_steps(form.hops, solution.ways[0], calls[0], 0, knowledge))
    first, second = solution.ways[:2]
    if form.kind == "same":
        *way, last = form.hops
        phrases = [_noun(way, name, one) for name in calls]
        text = one(grammar().relations[last.relation].same).format(a=phrases[0], b=phrases[1])
        steps = _steps(form.hops, first, calls[0], 0, knowledge)
        return text, tuple(steps + _steps(form.hops, second, calls[1], len(steps), knowledge))
    criterion = grammar().relations[form.criterion]
    compared = (Hop(form.criterion),)
    steps = _steps(compared, first, calls[0], 0, knowledge) + _steps(compared, second, calls[1], 1, knowledge)
    if form.kind == "before":
        return one(criterion.before).format(a=calls[0], b=calls[1]), tuple(steps)
    winner, lead = FRAMES[int(rng.integers(len(FRAMES)))]
    slots = {
        "a": calls[0],
        "b": calls[1],
        "that": "who" if criterion.subject == "person" else "that",
        "more": criterion.more if form.wants_more else criterion.less,
    }
    text = _ask(form.hops, winner.format(**slots), one)
    if lead:
        text = text[0].lower() + text[1:]
    chosen = calls[form.starts.index(solution.winner)]
    steps += _steps(form.hops, solution.ways[2], chosen, 2, knowledge)
    return capital(lead.format(**slots) + text), tuple(steps)


def _call(number: int, knowledge: Knowledge, p_alias: float, rng: np.random.Generator) -> str:
    entity = knowledge.entities[number]
    return call(entity, entity.alias if entity.alias and rng.random() < p_alias else entity.name)


def _ask(hops: Sequence[Hop], start: str, one: Callable[[Sequence[str]], str]) -> str:
    *way, last = hops
    relation = grammar().relations[last.relation]
    return _fill(relation.iask if last.is_inverse else relation.ask, _noun(way, start, one), start, one)


def _noun(hops: Sequence[Hop], start: str, one: Callable[[Sequence[str]], str]) -> str:
    phrase = start
    for hop in hops:
        relation = grammar().relations[hop.relation]
        phrase = _fill(relation.inoun if hop.is_inverse else relation.noun, phrase, start, one)
    return phrase


def _fill(patterns: Sequence[str], phrase: str, start: str, one: Callable[[Sequence[str]], str]) -> str:
    """Return a pattern about a phrase; one that ends with it where it is a phrase within a phrase, for readability."""
    if phrase != start:
        patterns = [pattern for pattern in patterns if pattern.rstrip("?").endswith("{x}")] or patterns
    return one(patterns).format(x=phrase)


def _steps(
    hops: Sequence[Hop],
    way: Sequence[Fact],
    start: str,
    before: int,
    knowledge: Knowledge,
) -> list[tuple[str, str]]:
    """Return a query and its answer per hop; `before` queries stand before these."""
    steps = []
    for number, (hop, fact) in enumerate(zip(hops, way, strict=True)):
        about = f"#{before + number}" if number else start
        answer = knowledge.entities[fact.subject].name if hop.is_inverse else fact.said
        relation = grammar().relations[hop.relation]
        steps.append((f"{about} {relation.ifind if hop.is_inverse else relation.find}", answer))
    return steps
