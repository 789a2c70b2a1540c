"""Draw forms: chains by walking from a random entity, comparisons and yes/no questions of two entities."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tsr_gym_envs.retrieval_qa.world.facts import Fact, Hop, Knowledge
from tsr_gym_envs.retrieval_qa.world.forms import Form
from tsr_gym_envs.retrieval_qa.world.grammar import Relation, grammar
from tsr_gym_envs.retrieval_qa.world.settings import WorldSettings

T = TypeVar("T")

# How often a walk goes back along a relation where it can, and a yes/no question asks of what is one hop away.
P_BACK, P_ONE_HOP_AWAY = 0.15, 0.5


class Drawing:
    """Draws forms; many have no answer or are no good and are to be thrown away.

    Args:
        settings: How often which form is drawn.
        knowledge: What is true.
        rng: Where forms are drawn from.
    """

    def __init__(self, settings: WorldSettings, knowledge: Knowledge, rng: np.random.Generator) -> None:
        self._settings, self._knowledge, self._rng = settings, knowledge, rng
        self._by_relation: dict[str, list[Fact]] = {}
        for fact in knowledge.facts.values():
            self._by_relation.setdefault(fact.relation, []).append(fact)
        told = [grammar().relations[name] for name, facts in self._by_relation.items() if len(facts) > 1]
        self._compared = [relation for relation in told if relation.less]
        self._ordered = [relation for relation in told if relation.before]
        self._shared = [relation for relation in told if relation.same]
        # What leads to an entity, by its number.
        self._into: dict[int, list[Fact]] = {}
        for (number, _), facts in knowledge.inverse.items():
            self._into.setdefault(number, []).extend(facts)
        self._p_hops = np.array(settings.hops) / sum(settings.hops)

    def form(self) -> Form | None:
        """Return a form of a kind that is drawn as well; None where the draw led nowhere."""
        settings, rng = self._settings, self._rng
        kind = rng.random()
        if kind < settings.p_comparison:
            return self._comparison(1 + int(rng.random() < 0.5))
        if kind < settings.p_comparison + settings.p_yes_no:
            return self._same() if rng.random() < 0.6 else self._before()
        num_hops = 1 + int(rng.choice(4, p=self._p_hops))
        start = int(rng.integers(len(self._knowledge.entities)))
        hops = self._walk(start, num_hops)
        return None if hops is None else Form("chain", (start,), hops)

    def _walk(self, start: int, num_hops: int) -> tuple[Hop, ...] | None:
        """Return relations that lead away from an entity, to an entity each until the last."""
        hops: list[Hop] = []
        at, visited = start, {start}
        while len(hops) < num_hops:
            is_last = len(hops) == num_hops - 1
            fact, is_inverse = self._next(at, is_last=is_last)
            if fact is None:
                return None
            hops.append(Hop(fact.relation, is_inverse))
            if len(hops) > 1 and hops[-1].relation == hops[-2].relation:
                return None
            end = fact.subject if is_inverse else fact.object
            if not isinstance(end, int):
                break
            if end in visited:
                return None
            visited.add(end)
            at = end
        return tuple(hops)

    def _next(self, at: int, *, is_last: bool) -> tuple[Fact | None, bool]:
        if self._rng.random() < P_BACK:
            backward = [fact for fact in self._into.get(at, ()) if grammar().relations[fact.relation].iask]
            if backward:
                return self._one(backward), True
        forward = self._knowledge.about.get(at, ())
        usable = [fact for fact in forward if is_last or isinstance(fact.object, int)]
        return (self._one(usable) if usable else None), False

    def _comparison(self, num_hops: int) -> Form | None:
        criterion = self._one(self._compared)
        starts = self._two(criterion)
        hops = self._walk(starts[0], num_hops)
        if hops is None or hops[0].relation == criterion.name:
            return None
        return Form("comparison", starts, hops, criterion.name, bool(self._rng.random() < 0.5))

    def _before(self) -> Form:
        criterion = self._one(self._ordered)
        return Form("before", self._two(criterion), (), criterion.name)

    def _same(self) -> Form | None:
        """Return a form whose answer is yes about as often as no."""
        relation = self._one(self._shared)
        first = self._one(self._by_relation[relation.name])
        others = self._by_relation[relation.name]
        if self._rng.random() < 0.5:
            others = [fact for fact in others if fact.object == first.object]
        second = self._one(others)
        if first.subject == second.subject:
            return None
        hop = Hop(relation.name)
        if self._rng.random() >= P_ONE_HOP_AWAY:
            return Form("same", (first.subject, second.subject), (hop,))
        return self._one_hop_away(first.subject, second.subject, hop)

    def _one_hop_away(self, first: int, second: int, hop: Hop) -> Form | None:
        """Return a form about two entities that lead to the two given ones."""
        into = self._into.get(first, ())
        ways = {fact.relation: fact for fact in self._into.get(second, ())}
        shared = [fact for fact in into if fact.relation in ways and fact.relation != hop.relation]
        if not shared:
            return None
        fact = self._one(shared)
        return Form("same", (fact.subject, ways[fact.relation].subject), (Hop(fact.relation), hop))

    def _two(self, criterion: Relation) -> tuple[int, int]:
        facts = self._by_relation[criterion.name]
        first, second = self._rng.choice(len(facts), 2, replace=False)
        return facts[first].subject, facts[second].subject

    def _one(self, choices: Sequence[T]) -> T:
        return choices[int(self._rng.integers(len(choices)))]
