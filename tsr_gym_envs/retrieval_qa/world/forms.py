"""Form: what a question asks, apart from its words, and the one answer that the facts give."""

from typing import Literal as OneOf
from typing import NamedTuple

from tsr_gym_envs.retrieval_qa.world.facts import Fact, Hop, Knowledge, Literal

YES, NO = ("yes",), ("no",)


class Form(NamedTuple):
    """What is asked.

    Attributes:
        kind: ``"chain"``: where relations lead from one start. ``"comparison"``: where they lead from whichever of two
            starts has more, or less, of something. ``"same"``: whether they lead from two starts to the same object.
            ``"before"``: whether the first of two has less of something.
        starts: One or two entities that the question names.
        hops: Relations to walk along.
        criterion: The relation that is compared; "" without comparison.
        wants_more: Whether the later or larger one is meant.
    """

    kind: OneOf["chain", "comparison", "same", "before"]
    starts: tuple[int, ...]
    hops: tuple[Hop, ...]
    criterion: str = ""
    wants_more: bool = False


class Solution(NamedTuple):
    """How a form is answered.

    Attributes:
        ways: The facts in the order in which one looks them up: a way per start, and the winner's last.
        answers: What counts as the answer; the first is the full name, the text of the passage, yes or no.
        answer_entity: Number of the answer where it is an entity.
        winner: Which of two starts was meant by a comparison.
    """

    ways: tuple[tuple[Fact, ...], ...]
    answers: tuple[str, ...]
    answer_entity: int | None = None
    winner: int | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """All facts, in order."""
        return tuple(fact for way in self.ways for fact in way)


def solve(form: Form, knowledge: Knowledge) -> Solution | None:
    """Return the answer to a form; None where there is none, or more than one."""
    criteria = (Hop(form.criterion),) if form.criterion else form.hops
    ways = [knowledge.walk(start, criteria) for start in form.starts]
    if form.kind == "chain":
        return _end(form.hops, ways[0], knowledge)
    first, second = ways
    if not first or not second:
        return None
    if form.kind == "same":
        is_same = first[-1].object == second[-1].object
        return Solution((tuple(first), tuple(second)), YES if is_same else NO)
    orders = [way[-1].object.order for way in (first, second) if isinstance(way[-1].object, Literal)]
    if len(orders) < 2 or orders[0] == orders[1]:
        return None
    if form.kind == "before":
        return Solution((tuple(first), tuple(second)), YES if orders[0] < orders[1] else NO)
    winner = form.starts[(orders[0] < orders[1]) == form.wants_more]
    end = _end(form.hops, knowledge.walk(winner, form.hops), knowledge)
    return end and Solution((tuple(first), tuple(second), *end.ways), end.answers, end.answer_entity, winner)


def _end(hops: tuple[Hop, ...], way: list[Fact] | None, knowledge: Knowledge) -> Solution | None:
    if not way:
        return None
    end = way[-1].subject if hops[-1].is_inverse else way[-1].object
    if isinstance(end, Literal):
        return Solution((tuple(way),), end.answers)
    return Solution((tuple(way),), knowledge.entities[end].answers, end)
