"""Inquiry: the questions of a world, each checked, and divided into splits that share nothing.

A question is kept only if its facts give exactly one answer; neither the answer nor any step's answer stands in it; no
supporting passage but the last says the answer; each fact stands in a passage of its own; and no question of another
split uses one of its facts, or has the same entity for an answer. So what a test question asks, at whatever hop, was
asked by no training question. Dates and numbers, and yes and no, are not entities and occur in all splits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tsr_gym.errors import GenerationFailed
from tsr_gym.seeds import derive_seed
from tsr_gym_envs.retrieval_qa.answers import contains_answer
from tsr_gym_envs.retrieval_qa.question import Question
from tsr_gym_envs.retrieval_qa.world.draw import Drawing
from tsr_gym_envs.retrieval_qa.world.facts import Knowledge
from tsr_gym_envs.retrieval_qa.world.forms import Form, Solution, solve
from tsr_gym_envs.retrieval_qa.world.settings import WorldSettings
from tsr_gym_envs.retrieval_qa.world.wording import word

DATA_SOURCE = "tsr-world"
SPLITS = ("train", "valid", "test")
# Draws in vain, one after the other, before giving up; a few are the rule.
MAX_DRAWS = 2000


class Inquiry(NamedTuple):
    """A question and the form behind it."""

    question: Question
    form: Form


def inquire(
    settings: WorldSettings, knowledge: Knowledge, texts: Sequence[str], ids: Sequence[str]
) -> tuple[Inquiry, ...]:
    """Return the questions of a world.

    Args:
        settings: How many, and of which forms.
        knowledge: What is true.
        texts: Contents of the entities' passages, by entity.
        ids: Ids of these passages, by entity.

    Raises:
        GenerationFailed: The world is too small for so many questions.
    """
    inquirer = _Inquirer(settings, knowledge, texts, ids)
    found: list[Inquiry] = []
    in_vain = 0
    while len(found) < settings.num_questions:
        inquiry = inquirer.draw(len(found))
        if inquiry is not None:
            found.append(inquiry)
        in_vain = 0 if inquiry is not None else in_vain + 1
        if in_vain == MAX_DRAWS:
            raise GenerationFailed(
                f"found {len(found)} of {settings.num_questions} questions about {settings.num_entities} entities; "
                "ask for fewer questions or more entities"
            )
    return tuple(found)


class _Inquirer:
    """Draws questions and keeps those that are fair and belong to the split whose turn it is."""

    def __init__(self, settings: WorldSettings, knowledge: Knowledge, texts: Sequence[str], ids: Sequence[str]) -> None:
        self._settings, self._knowledge, self._texts, self._ids = settings, knowledge, texts, ids
        self._rng = np.random.default_rng(derive_seed(settings.seed, "retrieval world", "questions"))
        self._drawing = Drawing(settings, knowledge, self._rng)
        self._asked: set[Form] = set()
        # The split of each fact and each answer: that of the question that came first.
        self._owners: dict[tuple[int, str], str] = {}
        self._turns = [split for split, tenths in zip(SPLITS, settings.splits, strict=True) for _ in range(tenths)]

    def draw(self, number: int) -> Inquiry | None:
        """Return a question, or None where what was drawn is no good."""
        form = self._drawing.form()
        solution = solve(form, self._knowledge) if form and form not in self._asked else None
        if form is None or solution is None or not _is_spread(solution):
            return None
        text, steps = word(form, solution, self._knowledge, self._settings.p_alias, self._rng)
        split = self._turns[number % len(self._turns)]
        if not _is_fair(form, solution, text, steps, self._texts) or not self._claim(split, solution):
            return None
        self._asked.add(form)
        supporting = tuple(dict.fromkeys(self._ids[fact.subject] for fact in solution.facts))
        name = f"{_sort(form)}-{self._settings.seed}-{number:05d}"
        return Inquiry(
            Question(name, DATA_SOURCE, text, solution.answers, supporting, split, len(supporting), steps), form
        )

    def _claim(self, split: str, solution: Solution) -> bool:
        """Return whether a split may have a question, and if so make its facts and its answer the split's own."""
        keys = [(fact.subject, fact.relation) for fact in solution.facts]
        if solution.answer_entity is not None:
            keys.append((solution.answer_entity, "answer"))
        if any(self._owners.get(key, split) != split for key in keys):
            return False
        self._owners.update(dict.fromkeys(keys, split))
        return True


def _sort(form: Form) -> str:
    return f"{len(form.hops)}hop" if form.kind == "chain" else "comparison" if form.kind == "comparison" else "yesno"


def _is_spread(solution: Solution) -> bool:
    """Return whether each fact stands in a passage of its own, but for the winner's of a comparison."""
    subjects = [fact.subject for fact in solution.facts]
    return len(set(subjects)) == len(subjects) - (solution.winner is not None)


def _is_fair(form: Form, solution: Solution, text: str, steps: Sequence[tuple[str, str]], texts: Sequence[str]) -> bool:
    if any(contains_answer(text, said) for _, said in steps):
        return False
    if form.kind in ("same", "before"):
        return True
    if contains_answer(text, solution.answers):
        return False
    last = solution.facts[-1].subject
    return not any(
        contains_answer(texts[fact.subject], solution.answers) for fact in solution.facts if fact.subject != last
    )
