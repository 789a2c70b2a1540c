"""Trajectories of small trees, written down in a line each, and advantages read off per turn."""

from itertools import chain, count
from typing import NamedTuple

import torch

from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.batch import collate


class Said(NamedTuple):
    """A turn in short: the node that it leads to (-1 for none), its reward, state, score, number of tokens, action."""

    node: int = -1
    reward: float = 0.0
    state: bytes | None = None
    score: float = 0.0
    tokens: int = 2
    logprob: float = -1.0
    action: str | None = None


def path(*turns, tree=0, selected_by="naive", finished=True, success=False, score=0.0):
    """Return a trajectory whose prompts grow; a node says the same tokens wherever it stands."""
    ids, made = [1], []
    for said in turns:
        said = said if isinstance(said, Said) else Said(*said)
        tokens = tuple(10 + 5 * tree + said.node + place for place in range(said.tokens))
        made.append(
            Turn(
                tuple(ids),
                tokens,
                (said.logprob,) * said.tokens,
                said.reward,
                is_valid=True,
                num_actions=1,
                node=said.node,
                state=said.state,
                score=said.score,
                action=said.action,
            )
        )
        ids = [*ids, *tokens, 2]
    return Trajectory(tuple(made), success, score, selected_by, tree, finished)


def leaf(nodes, worth, **more):
    """Return the path through some nodes whose last turn earns everything."""
    *before, last = nodes
    return path(*[(node,) for node in before], (last, worth), **more)


def batch_of(*groups):
    return collate([Group(number, tuple(group)) for number, group in enumerate(groups)])


def by_turn(batch, advantages):
    """Return the advantages as a list per trajectory, after a look that a turn's tokens share one and others have 0."""
    assert advantages.shape == batch.ids.shape
    assert torch.count_nonzero(advantages[~batch.sampled]) == 0
    found = {}
    for number, turns, values in zip(batch.trajectory.tolist(), batch.turn.tolist(), advantages.tolist(), strict=True):
        for turn, value in zip(turns, values, strict=True):
            if turn >= 0:
                assert found.setdefault((number, turn), value) == value
    return [
        [value for (its, _), value in sorted(found.items()) if its == number]
        for number in range(batch.num_trajectories)
    ]


def flat(lists):
    return list(chain.from_iterable(lists))


def by_trajectory(batch, advantages):
    """Return each trajectory's advantage, after a look that all of its turns have the same."""
    found = []
    for turns in by_turn(batch, advantages):
        assert len(set(turns)) == 1
        found.append(turns[0])
    return found


def random_groups(seed, *, groups=3, trees=2, depth=4, chains=False, kinds=False):
    """Return groups of random trees in which every leaf is a trajectory; rewards lie on any turn."""
    draw = torch.Generator().manual_seed(seed)

    def number(low, high):
        return int(torch.randint(low, high, (), generator=draw))

    def said(node):
        state = bytes([number(0, 4)]) if number(0, 5) else None
        return Said(node, number(-2, 5) / 4, state, number(0, 5) / 2, number(1, 4), -number(1, 9) / 4)

    def grow(turns, nodes):
        """Return the paths below some turns; `nodes` counts on."""
        if turns and (len(turns) == depth or number(0, 4) == 0):
            return [turns]
        children = [said(next(nodes)) for _ in range(1 if chains else number(1, 4))]
        return flat(grow([*turns, child], nodes) for child in children)

    found = []
    for task in range(groups):
        leaves = []
        for tree in range(number(2, 6) if chains else number(1, trees + 1)):
            for turns in grow([], count(1)):
                kind = "beam" if kinds and number(0, 2) else "naive"
                leaves.append(path(*turns, tree=tree, selected_by=kind))
        found.append(Group(task, tuple(leaves)))
    return found
