"""A world read and solved the slow way: facts from the passages' sentences, answers by going through all facts."""

import re
from functools import cache

from tsr_gym_envs.retrieval_qa.world.facts import Literal
from tsr_gym_envs.retrieval_qa.world.sentences import grammar

SLOT = re.compile(r"\\\{(\w+)\\\}")


@cache
def words(text):
    """Return the words that count in SQuAD's comparison, found with another method than the project's."""
    plain = re.sub(r"[^\w\s]|_", "", text.lower(), flags=re.ASCII if text.isascii() else 0)
    return [word for word in plain.split() if word not in ("a", "an", "the")]


def holds(text, phrase):
    """Return whether the words of a phrase stand one after the other in a text."""
    there, wanted = words(text), words(phrase)
    return any(there[i : i + len(wanted)] == wanted for i in range(len(there) - len(wanted) + 1))


def says(text, relation, said):
    """Return whether a sentence of a text has a pattern of a relation with this object."""
    named = f"(the )?{re.escape(said)}"
    for pattern in grammar().relations[relation].state:
        regex = SLOT.sub(lambda slot: named if slot[1] == "o" else r"[^.]{0,60}?", re.escape(pattern))
        if re.search(rf"(^|[.] ){regex}", text, re.IGNORECASE):
            return True
    return False


def ways(facts, start, hops):
    """Return every way along relations from a start, as its facts and its end."""
    found = [((), start)]
    for hop in hops:
        fitting = [fact for fact in facts if fact.relation == hop.relation]
        if hop.is_inverse:
            found = [((*way, fact), fact.subject) for way, at in found for fact in fitting if fact.object == at]
        else:
            found = [((*way, fact), fact.object) for way, at in found for fact in fitting if fact.subject == at]
    return found


def solve_naively(form, world, facts):
    """Return every answer that a form has, each with the facts that it rests on, by going through all facts."""
    if form.kind == "same":
        (first, a), (second, b) = (ways(facts, start, form.hops)[0] for start in form.starts)
        return [(("yes",) if a == b else ("no",), first + second)]
    compared = ()
    start = form.starts[0]
    if form.criterion:
        found = [fact for start in form.starts for fact in facts if fact[:2] == (start, form.criterion)]
        compared = tuple(found)
        first, second = (fact.object.order for fact in found)
        if form.kind == "before":
            return [(("yes",) if first < second else ("no",), compared)]
        start = form.starts[[first, second].index((max if form.wants_more else min)(first, second))]
    return [(_named(end, world), compared + way) for way, end in ways(facts, start, form.hops)]


def _named(end, world):
    if isinstance(end, Literal):
        return end.answers
    entity = world.knowledge.entities[end]
    return (entity.name, entity.alias) if entity.alias else (entity.name,)
