"""The world's grammar: kinds of entities, relations between them, and every sentence that says or asks one.

A line of the pattern texts is a word and what it stands for:

- ``kind``, ``call`` (how questions name one), ``refer`` ("the film"), ``article``, ``word`` (a slot's choices), and
  sentences of its passage: ``open`` (the first), ``alias``, ``filler`` (says nothing that is asked);
- ``relation NAME OBJECT``, of the kind above it; OBJECT is a kind, ``kind/trade`` or a unit of `UNITS`. ``tell`` states
  it in the subject's passage, ``back`` in the object's. ``noun`` is a phrase for the object and ``inoun`` for the
  subject; ``ask`` and ``iask`` ask for them, ``find`` and ``ifind`` are words to search for them by. ``same`` and
  ``before`` ask yes or no; ``less`` and ``more`` compare.

Slots: ``{s}`` the subject at the head of a sentence, ``{it}`` within one, ``{o}`` the object, ``{x}`` what a question
is about, ``{a}`` and ``{b}`` the two of a comparison; ``{a mood}`` a choice with its article.
"""

from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from tsr_gym_envs.retrieval_qa.world.landmarks import LANDMARKS
from tsr_gym_envs.retrieval_qa.world.organisations import ORGANISATIONS
from tsr_gym_envs.retrieval_qa.world.people import PEOPLE
from tsr_gym_envs.retrieval_qa.world.places import PLACES
from tsr_gym_envs.retrieval_qa.world.works import WORKS

UNITS = ("date", "year", "people", "students", "seats", "pages", "minutes", "kilometres", "metres")

Patterns = tuple[str, ...]


class Kind(NamedTuple):
    """A kind of entity.

    Attributes:
        name: Such as ``"film"``.
        call: How a question names one.
        refer: How its passage refers to it, besides a pronoun; "" for people.
        article: ``"the "`` where the name takes one, else "".
        words: Choices of each slot.
        open: First sentences.
        alias: Sentences that state the alias.
        filler: Sentences that say nothing that is asked.
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
    """A relation: every subject has at most one object. The module says what the patterns are."""

    name: str
    subject: str
    object: str
    trade: str
    tell: Patterns
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
        kinds = [pattern for kind in self.kinds.values() for pattern in kind.open + kind.alias + kind.filler]
        return frozenset(kinds).union(*(relation.tell + relation.back for relation in self.relations.values()))

    @property
    def questions(self) -> frozenset[str]:
        """All patterns of questions with one hop, and of questions with yes or no."""
        return frozenset().union(*(r.ask + r.iask + r.same + r.before for r in self.relations.values()))


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    """Return the grammar of the world."""
    kinds: dict[str, Kind] = {}
    relations: dict[str, Relation] = {}
    subject = ""
    for text in (PEOPLE, PLACES, WORKS, ORGANISATIONS, LANDMARKS):
        for block in text.strip().split("\n\n"):
            head, *lines = block.split("\n")
            word, name, *rest = head.split(" ", 2)
            if word == "kind":
                subject = name
                kinds[name] = _kind(name, _by_word(lines))
            else:
                relations[name] = _relation(name, subject, rest[0], _by_word(lines))
    return Grammar(MappingProxyType(kinds), MappingProxyType(relations))


def _by_word(lines: list[str]) -> dict[str, Patterns]:
    found: dict[str, Patterns] = {}
    for line in lines:
        word, _, pattern = line.partition(" ")
        found[word] = (*found.get(word, ()), pattern)
    return found


def _kind(name: str, found: dict[str, Patterns]) -> Kind:
    words = {slot: tuple(rest.split("|")) for slot, _, rest in (line.partition(" ") for line in found.get("word", ()))}
    article = found["article"][0] + " " if "article" in found else ""
    refer = found.get("refer", ("",))[0]
    return Kind(name, found["call"][0], refer, article, words, found["open"], found["alias"], found["filler"])


def _relation(name: str, subject: str, spec: str, found: dict[str, Patterns]) -> Relation:
    object_kind, _, trade = spec.partition("/")
    return Relation(
        name=name,
        subject=subject,
        object=object_kind,
        trade=trade,
        tell=found["tell"],
        back=found.get("back", ()),
        noun=found.get("noun", ()),
        inoun=found.get("inoun", ()),
        ask=found["ask"],
        iask=found.get("iask", ()),
        find=found["find"][0],
        ifind=found.get("ifind", ("",))[0],
        same=found.get("same", ()),
        before=found.get("before", ()),
        less=found.get("less", ("",))[0],
        more=found.get("more", ("",))[0],
    )
