"""Facts: the entities of a world, what is true of them, and the answers that follow.

A form is the content of a question without its words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import NamedTuple


class Entity(NamedTuple):
    """A person or thing that has a passage.

    Attributes:
        number: Its place among the entities.
        kind: A kind of the grammar.
        name: What it is called; no other entity of its kind is.
        alias: Another name for it, "" where it has none.
        trade: What a person or company does; "" otherwise.
        born: A person's year of birth; for others the year about which the people around them were born.
        is_female: Whether a person is she.
    """

    number: int
    kind: str
    name: str
    alias: str = ""
    trade: str = ""
    born: int = 0
    is_female: bool = False

    @property
    def answers(self) -> tuple[str, ...]:
        """The accepted names of the entity."""
        return (self.name, self.alias) if self.alias else (self.name,)


class Literal(NamedTuple):
    """A date or a number.

    Attributes:
        answers: Accepted texts; the first is the one in passages.
        order: What earlier and later, or less and more, go by.
    """

    answers: tuple[str, ...]
    order: int


class Fact(NamedTuple):
    """One fact, which the passage of its subject states.

    Attributes:
        subject: Number of an entity.
        relation: A relation of the grammar.
        object: Number of an entity, or a literal.
        text: The object as the passage writes it.
    """

    subject: int
    relation: str
    object: int | Literal
    text: str


class Hop(NamedTuple):
    """One step along a relation, from subject to object or back."""

    relation: str
    is_inverse: bool = False


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All entities and facts, with the facts by subject and by object."""

    entities: tuple[Entity, ...]
    facts: dict[tuple[int, str], Fact]
    inverse: dict[tuple[int, str], tuple[Fact, ...]]
    about: dict[int, tuple[Fact, ...]]

    def walk(self, start: int, hops: Sequence[Hop]) -> list[Fact] | None:
        """Return the facts on the way from an entity along relations; None unless each leads to exactly one object."""
        at: int | Literal = start
        way = []
        for hop in hops:
            if isinstance(at, Literal):
                return None
            if hop.is_inverse:
                facts = self.inverse.get((at, hop.relation), ())
                if len(facts) != 1:
                    return None
                fact, at = facts[0], facts[0].subject
            else:
                forward = self.facts.get((at, hop.relation))
                if forward is None:
                    return None
                fact, at = forward, forward.object
            way.append(fact)
        return way


def gather(entities: Sequence[Entity], facts: Iterable[Fact]) -> Knowledge:
    """Return entities and facts as one knowledge base; of two facts that contradict each other the later holds."""
    forward = {(fact.subject, fact.relation): fact for fact in facts}
    inverse: dict[tuple[int, str], tuple[Fact, ...]] = {}
    about: dict[int, tuple[Fact, ...]] = {}
    for fact in forward.values():
        about[fact.subject] = (*about.get(fact.subject, ()), fact)
        if not isinstance(fact.object, Literal):
            key = fact.object, fact.relation
            inverse[key] = (*inverse.get(key, ()), fact)
    return Knowledge(tuple(entities), forward, inverse, about)


YES, NO = ("yes",), ("no",)


class Form(NamedTuple):
    """The content of a question without its words.

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
    """Return the answer to a form; None where it has no answer or more than one."""
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
