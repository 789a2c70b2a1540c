"""Sentences: the grammar of a world, and its entities and facts as passages of natural English.

`grammar.toml` holds the grammar: kinds of entities, their relations, and every sentence that states or asks one. A kind
has these keys:

- ``call`` (its name in a question), ``refer`` (such as "the film"), ``article``, ``words`` (the choices of each slot,
  with ``|`` between them), and sentences of its passage: ``open`` (the first), ``alias``, ``filler`` (states nothing
  that is asked).

A relation stands below the kind of its subject and has these keys:

- ``object``: a kind, ``kind/trade`` or a unit of `UNITS`;
- ``state`` states it in the subject's passage, ``back`` in the object's; ``noun`` is a phrase for the object and
  ``inoun`` for the subject; ``ask`` and ``iask`` ask for them, ``find`` and ``ifind`` are queries for them; ``same``
  and ``before`` ask yes or no; ``less`` and ``more`` compare.

Slots: ``{s}`` the subject at the head of a sentence, ``{it}`` within one, ``{o}`` the object, ``{x}`` the thing that a
question is about, ``{a}`` and ``{b}`` the two of a comparison; ``{a mood}`` a choice with its article.
"""

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tsr_gym_envs.retrieval_qa.world.facts import Entity, Fact, Knowledge

UNITS = ("date", "year", "people", "students", "seats", "pages", "minutes", "kilometres", "metres")

# The keys of a relation: those with several patterns, and those with one text.
_PATTERN_KEYS = ("state", "back", "noun", "inoun", "ask", "iask", "same", "before")
_TEXT_KEYS = ("find", "ifind", "less", "more")

Patterns = tuple[str, ...]


class Kind(NamedTuple):
    """A kind of entity.

    Attributes:
        name: Such as ``"film"``.
        call: How a question names one.
        refer: Its name in its passage, in addition to a pronoun; "" for people.
        article: ``"the "`` where the name takes one, else "".
        words: Choices of each slot.
        open: First sentences.
        alias: Sentences that state the alias.
        filler: Sentences that state nothing that is asked.
    """

    name: str
    call: str
    refer: str
    article: str
    words: dict[str, Patterns]
    open: Patterns
    alias: Patterns
    filler: Patterns


class Relation(NamedTuple):
    """A relation: every subject has at most one object. The module documents the patterns."""

    name: str
    subject: str
    object: str
    trade: str
    state: Patterns
    back: Patterns
    noun: Patterns
    inoun: Patterns
    ask: Patterns
    iask: Patterns
    find: str
    ifind: str
    same: Patterns
    before: Patterns
    less: str
    more: str

    @property
    def is_literal(self) -> bool:
        """Whether the object is a date or a number."""
        return self.object in UNITS


class Grammar(NamedTuple):
    """All kinds and relations, by name."""

    kinds: MappingProxyType[str, Kind]
    relations: MappingProxyType[str, Relation]

    @property
    def statements(self) -> frozenset[str]:
        """All sentence patterns of passages."""
        own = [(*of.open, *of.alias, *of.filler) for of in self.kinds.values()]
        return frozenset().union(*own, *(relation.state + relation.back for relation in self.relations.values()))

    @property
    def questions(self) -> frozenset[str]:
        """All patterns of questions with one hop, and of questions with yes or no."""
        return frozenset().union(*(r.ask + r.iask + r.same + r.before for r in self.relations.values()))


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    """Return the grammar of the world."""
    entries = _read()
    del entries["overviews"]
    return Grammar(
        MappingProxyType({name: _kind(name, entry) for name, entry in entries.items()}),
        MappingProxyType(
            {
                name: _relation(name, subject, relation)
                for subject, entry in entries.items()
                for name, relation in entry.get("relations", {}).items()
            }
        ),
    )


def _read() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "grammar.toml").read_text(encoding="utf-8"))


def _kind(name: str, entry: Mapping[str, Any]) -> Kind:
    return Kind(
        name=name,
        call=entry["call"],
        refer=entry.get("refer", ""),
        article=f"{entry['article']} " if "article" in entry else "",
        words={slot: tuple(text.split("|")) for slot, text in entry.get("words", {}).items()},
        open=tuple(entry["open"]),
        alias=tuple(entry["alias"]),
        filler=tuple(entry["filler"]),
    )


def _relation(name: str, subject: str, entry: Mapping[str, Any]) -> Relation:
    object_kind, _, trade = entry["object"].partition("/")
    patterns = {key: tuple(entry.get(key, ())) for key in _PATTERN_KEYS}
    texts = {key: entry.get(key, "") for key in _TEXT_KEYS}
    fields: dict[str, Any] = {**patterns, **texts}
    return Relation(name=name, subject=subject, object=object_kind, trade=trade, **fields)


# Fillers are added up to the first length as long as the passage stays below the second.
ENOUGH_WORDS, MAX_WORDS = 55, 100
MAX_BACKLINKS = 2
# How often a passage repeats a full name as a subject.
MAX_NAMED = 2
HE = {"He": "He", "he": "he", "His": "His", "his": "his", "him": "him", "himself": "himself", "child": "son"}
SHE = {"He": "She", "he": "she", "His": "Her", "his": "her", "him": "her", "himself": "herself", "child": "daughter"}


def with_article(noun: str) -> str:
    """Return a noun with "a" or "an".

    >>> with_article("arch"), with_article("truss")
    ('an arch', 'a truss')
    """
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def call(entity: Entity, name: str) -> str:
    """Return an entity as a question names it, by one of its names."""
    return grammar().kinds[entity.kind].call.format(name=name)


def title(entity: Entity) -> str:
    """Return the title of an entity's passage; films and books can share a name, so theirs name the kind."""
    return f"{entity.name} ({entity.kind})" if entity.kind in ("film", "book") else entity.name


def passage(entity: Entity, knowledge: Knowledge, p_backlink: float, rng: np.random.Generator) -> str:
    """Return an entity's passage, which states all facts of which it is the subject."""
    entity_kind = grammar().kinds[entity.kind]
    writer = _Writer(entity, entity_kind, knowledge, rng)
    sentences = [writer.write(writer.pick(entity_kind.open))]
    facts = [writer.state(fact) for fact in knowledge.about.get(entity.number, ())]
    others = writer.backlinks(p_backlink)
    if entity.alias:
        others.append(writer.write(writer.pick(entity_kind.alias)))
    if entity.kind == "person":
        # The facts of a life stay in order, from birth to death.
        last = max(0, len(facts) - 1)
        sentences += facts[:last] + others + facts[last:]
    else:
        rest = facts + others
        sentences += [rest[i] for i in rng.permutation(len(rest))]
    num_words = sum(len(sentence.split()) for sentence in sentences)
    for i in rng.permutation(len(entity_kind.filler)):
        if num_words >= ENOUGH_WORDS:
            break
        filler = writer.write(entity_kind.filler[i])
        if num_words + len(filler.split()) <= MAX_WORDS:
            sentences.insert(int(rng.integers(1, len(sentences))), filler)
            num_words += len(filler.split())
    return " ".join(sentences)


class _Writer:
    """Fills the slots of patterns for one passage."""

    def __init__(self, entity: Entity, entity_kind: Kind, knowledge: Knowledge, rng: np.random.Generator) -> None:
        self._entity, self._kind, self._knowledge, self._rng = entity, entity_kind, knowledge, rng
        is_dead = (entity.number, "death_year") in knowledge.facts
        self._times_named = 0
        self._slots = {
            "name": entity.name,
            "alias": entity.alias,
            "is": "was" if is_dead else "is",
            "it": entity_kind.refer,
        } | (SHE if entity.is_female else HE)
        choices = {slot: self.pick(words) for slot, words in entity_kind.words.items()} | {
            "trade": entity.trade or "thing"
        }
        for slot, noun in choices.items():
            self._slots |= {slot: noun, f"a {slot}": with_article(noun), f"A {slot}": capital(with_article(noun))}

    def write(self, pattern: str, **slots: str) -> str:
        """Return a pattern with its slots filled."""
        return capital(pattern.format_map(self._slots | {"s": self._subject()} | slots))

    def state(self, fact: Fact) -> str:
        """Return a sentence that states a fact about the entity."""
        text = fact.text
        if isinstance(fact.object, int):
            text = grammar().kinds[self._knowledge.entities[fact.object].kind].article + text
        return self.write(self.pick(grammar().relations[fact.relation].state), o=text)

    def backlinks(self, p_backlink: float) -> list[str]:
        """Return sentences that state facts of which the entity is the object."""
        sentences: list[str] = []
        for relation in grammar().relations.values():
            if relation.back and relation.trade == self._entity.trade:
                for fact in self._knowledge.inverse.get((self._entity.number, relation.name), ()):
                    if len(sentences) < MAX_BACKLINKS and self._rng.random() < p_backlink:
                        name = self._knowledge.entities[fact.subject].name
                        sentences.append(self.write(self.pick(relation.back), o=name))
        return sentences

    def pick(self, choices: Patterns) -> str:
        """Return one of some texts."""
        return choices[int(self._rng.integers(len(choices)))]

    def _subject(self) -> str:
        if self._entity.kind == "person":
            surname = self._entity.name.split()[-1]
            return self.pick((self._slots["He"], self._slots["He"], surname))
        named = f"{capital(self._kind.article)}{self._entity.name}"
        subject = self.pick(("It", capital(self._kind.refer), named if self._times_named < MAX_NAMED else "It"))
        self._times_named += subject == named
        return subject


def capital(text: str) -> str:
    """Return a text with a capital at its head."""
    return text[:1].upper() + text[1:]


MAX_LISTED = 6
PLACED = ("museum_city", "university_city", "festival_city", "paper_city")


def overviews(knowledge: Knowledge, num: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Return titles and texts of up to `num` overviews: of surnames, of natives of cities, of what cities have."""
    texts = _read()["overviews"]
    people = [entity for entity in knowledge.entities if entity.kind == "person"]
    surnames: dict[str, list[Entity]] = {}
    for person in people:
        surnames.setdefault(person.name.split()[-1], []).append(person)
    subjects = [
        (f"{name} (surname)", texts["surnames"], name, bearers)
        for name, bearers in surnames.items()
        if len(bearers) > 1
    ]
    for city in [entity for entity in knowledge.entities if entity.kind == "city"]:
        natives = _subjects(knowledge, city.number, ("born_in",))
        placed = _subjects(knowledge, city.number, PLACED)
        subjects += [(f"Natives of {city.name}", texts["natives"], city.name, natives)] if len(natives) > 1 else []
        subjects += [(f"Sights of {city.name}", texts["located"], city.name, placed)] if len(placed) > 1 else []
    drawn = [subjects[number] for number in sorted(rng.permutation(len(subjects))[:num])]
    return [(title, _text(patterns, name, members, rng)) for title, patterns, name, members in drawn]


def _subjects(knowledge: Knowledge, number: int, relations: tuple[str, ...]) -> list[Entity]:
    facts = [fact for relation in relations for fact in knowledge.inverse.get((number, relation), ())]
    return [knowledge.entities[fact.subject] for fact in facts]


def _text(patterns: Patterns, name: str, members: list[Entity], rng: np.random.Generator) -> str:
    listed = [_listed(member) for member in members[:MAX_LISTED]]
    text = patterns[int(rng.integers(len(patterns)))]
    return text.format(name=name, list=f"{', '.join(listed[:-1])} and {listed[-1]}")


def _listed(entity: Entity) -> str:
    if entity.kind == "person":
        return f"the {entity.trade} {entity.name}"
    article = "" if entity.name.startswith("The ") else "the "
    return f"{article}{entity.name}" if entity.kind != "university" else entity.name
