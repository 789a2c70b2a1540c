"""Adaptive sampling against a twin that works the rule out anew from plain lists, and where it spends."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.worlds import Script, grow_bare, letters
from tsr_gym.agents.strategies import adaptive, naive


def by_luck(tree, parent, number):
    """Three turns, a random reward each; one in three that reach the end succeed."""
    rng = np.random.default_rng([tree.seed, *tree.branch(parent), number])
    last = tree.nodes[parent].depth == 2
    return {"terminated": last, "reward": float(rng.normal()), "info": {"success": bool(rng.random() < 0.33)}}


def outcome_of(tree, leaf, outcome):
    return tree.total(leaf, "reward") if outcome == "return" else float(tree.nodes[leaf].info["success"])


def variance(tree, node, outcome, trust):
    """Return the variance of the outcome at a node, with its parent's expectations as more continuations."""

    def own(here, power):
        children = tree.children(here)
        if not children:
            return outcome_of(tree, here, outcome) ** power
        return sum(own(child, power) for child in children) / len(children)

    def helped(here, power):
        if here == 0:
            return own(0, power)
        number = len(tree.children(here))
        return (number * own(here, power) + trust * helped(tree.nodes[here].parent, power)) / (number + trust)

    return helped(node, 2) - helped(node, 1) ** 2


@given(
    seed=st.integers(0, 10**6),
    outcome=st.sampled_from(["success", "return"]),
    trust=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
)
def test_every_further_rollout_begins_where_the_rule_says(seed, outcome, trust):
    strategy = partial(adaptive, min_rollouts=3, max_rollouts=9, outcome=outcome, trust=trust, parallel=1)
    starts = []

    def watched(tree):
        for wishes in strategy(tree):
            node = wishes[0].node
            if tree.children(node):
                inner = [here for here in range(len(tree.nodes)) if tree.children(here)]
                worth = {here: variance(tree, here, outcome, trust) / len(tree.children(here)) for here in inner}
                assert worth[node] == pytest.approx(max(worth.values()), abs=1e-6)
                starts.append(node)
            yield wishes

    tree, chosen = grow_bare(watched, by_luck, seed=seed)
    assert chosen is None
    came = [outcome_of(tree, leaf, outcome) for leaf in tree.leaves()]
    differ = max(came[:3]) != min(came[:3]) if len(came) == 3 else True
    assert (len(starts), len(came)) == (6 if differ else 0, 9 if differ else 3)


@pytest.mark.parametrize("outcome", ["success", "return"])
@pytest.mark.parametrize("least", [1, 4])
def test_nothing_more_is_spent_where_all_agree(outcome, least):
    def alike(tree, parent, number):
        return {"terminated": tree.nodes[parent].depth == 2, "reward": 0.1, "info": {"success": True}}

    plain, _ = grow_bare(partial(naive, rollouts=least), alike)
    tree, _ = grow_bare(partial(adaptive, min_rollouts=least, max_rollouts=50, outcome=outcome), alike)
    assert [node.parent for node in tree.nodes] == [node.parent for node in plain.nodes]


def test_what_an_agreeing_group_did_not_take_is_missing_from_the_ledger():
    env = letters({"a": 1.0, "b": 2.0}, turns=1)
    says = {"": "abababab"}
    spent = env.search(Script(says), partial(adaptive, min_rollouts=2, max_rollouts=8)).spent
    assert (spent.env_steps, spent.model_calls) == (2, 1)
    env.reset(seed=0)
    tree = env.search(Script(says), partial(adaptive, min_rollouts=2, max_rollouts=8, outcome="return"))
    # Two letters and then twice four, of which equal ones share a step of the environment.
    assert (len(tree.leaves()), tree.spent.env_steps, tree.spent.model_calls) == (8, 6, 3)


@given(seed=st.integers(0, 10**6), least=st.integers(2, 5), more=st.integers(0, 9), parallel=st.integers(1, 12))
def test_the_budget_is_kept_exactly_whatever_goes_on_at_a_time(seed, least, more, parallel):
    numbers = {"min_rollouts": least, "max_rollouts": least + more, "outcome": "return", "parallel": parallel}
    tree, _ = grow_bare(partial(adaptive, **numbers), by_luck, seed=seed)
    assert len(tree.leaves()) == least + more
