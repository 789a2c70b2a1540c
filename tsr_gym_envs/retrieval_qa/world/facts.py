"""What is true in the world: entities and facts, and what follows from them when relations are walked along."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Entity(NamedTuple):
    """Somebody or something with a passage of its own.

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
        """What counts as naming it."""
        return (self.name, self.alias) if self.alias else (self.name,)


class Literal(NamedTuple):
    """A date or a number.

    Attributes:
        answers: What counts as saying it; the first is how passages say it.
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
        said: How the passage says the object.
    """

    subject: int
    relation: str
    object: int | Literal
    said: str


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
                found = self.inverse.get((at, hop.relation), ())
                if len(found) != 1:
                    return None
                fact, at = found[0], found[0].subject
            else:
                known = self.facts.get((at, hop.relation))
                if known is None:
                    return None
                fact, at = known, known.object
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
