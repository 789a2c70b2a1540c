"""Sentences: an entity and its facts as a passage of natural English of about 40 to 110 words."""

import numpy as np

from tsr_gym_envs.retrieval_qa.world.facts import Entity, Fact, Knowledge
from tsr_gym_envs.retrieval_qa.world.grammar import Kind, Patterns, grammar

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
    """Return the title of an entity's passage; films and books may share a name, so theirs say what they are."""
    return f"{entity.name} ({entity.kind})" if entity.kind in ("film", "book") else entity.name


def passage(entity: Entity, knowledge: Knowledge, p_backlink: float, rng: np.random.Generator) -> str:
    """Return an entity's passage, which states all facts of which it is the subject."""
    kind = grammar().kinds[entity.kind]
    writer = _Writer(entity, kind, knowledge, rng)
    sentences = [writer.write(writer.pick(kind.open))]
    facts = [writer.tell(fact) for fact in knowledge.about.get(entity.number, ())]
    others = writer.backlinks(p_backlink)
    if entity.alias:
        others.append(writer.write(writer.pick(kind.alias)))
    if entity.kind == "person":
        # A life is told in its order, from birth to death.
        last = max(0, len(facts) - 1)
        sentences += facts[:last] + others + facts[last:]
    else:
        told = facts + others
        sentences += [told[i] for i in rng.permutation(len(told))]
    num_words = sum(len(sentence.split()) for sentence in sentences)
    for i in rng.permutation(len(kind.filler)):
        if num_words >= ENOUGH_WORDS:
            break
        filler = writer.write(kind.filler[i])
        if num_words + len(filler.split()) <= MAX_WORDS:
            sentences.insert(int(rng.integers(1, len(sentences))), filler)
            num_words += len(filler.split())
    return " ".join(sentences)


class _Writer:
    """Fills the slots of patterns for one passage."""

    def __init__(self, entity: Entity, kind: Kind, knowledge: Knowledge, rng: np.random.Generator) -> None:
        self._entity, self._kind, self._knowledge, self._rng = entity, kind, knowledge, rng
        is_dead = (entity.number, "death_year") in knowledge.facts
        self._times_named = 0
        self._slots = {
            "name": entity.name,
            "alias": entity.alias,
            "is": "was" if is_dead else "is",
            "it": kind.refer,
        } | (SHE if entity.is_female else HE)
        choices = {slot: self.pick(words) for slot, words in kind.words.items()} | {"trade": entity.trade or "thing"}
        for slot, noun in choices.items():
            self._slots |= {slot: noun, f"a {slot}": with_article(noun), f"A {slot}": capital(with_article(noun))}

    def write(self, pattern: str, **slots: str) -> str:
        """Return a pattern with its slots filled."""
        return capital(pattern.format_map(self._slots | {"s": self._subject()} | slots))

    def tell(self, fact: Fact) -> str:
        """Return a sentence that states a fact about the entity."""
        said = fact.said
        if isinstance(fact.object, int):
            said = grammar().kinds[self._knowledge.entities[fact.object].kind].article + said
        return self.write(self.pick(grammar().relations[fact.relation].tell), o=said)

    def backlinks(self, p_backlink: float) -> list[str]:
        """Return sentences that state facts of which the entity is the object."""
        told: list[str] = []
        for relation in grammar().relations.values():
            if relation.back and relation.trade == self._entity.trade:
                for fact in self._knowledge.inverse.get((self._entity.number, relation.name), ()):
                    if len(told) < MAX_BACKLINKS and self._rng.random() < p_backlink:
                        name = self._knowledge.entities[fact.subject].name
                        told.append(self.write(self.pick(relation.back), o=name))
        return told

    def pick(self, choices: Patterns) -> str:
        """Return one of some texts."""
        return choices[int(self._rng.integers(len(choices)))]

    def _subject(self) -> str:
        if self._entity.kind == "person":
            surname = self._entity.name.split()[-1]
            return self.pick((self._slots["He"], self._slots["He"], surname))
        named = f"{capital(self._kind.article)}{self._entity.name}"
        chosen = self.pick(("It", capital(self._kind.refer), named if self._times_named < MAX_NAMED else "It"))
        self._times_named += chosen == named
        return chosen


def capital(text: str) -> str:
    """Return a text with a capital at its head."""
    return text[:1].upper() + text[1:]
