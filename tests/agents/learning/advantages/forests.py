"""Trajectories of small trees, written down in a line each, and advantages read off per turn."""

from itertools import chain, count
from typing import NamedTuple

import torch

from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.batch import collate


class Sampled(NamedTuple):
    """A turn in short: its node (-1 for none), reward, state, score, number of tokens, log-probability and action."""

    node: int = -1
    reward: float = 0.0
    state: bytes | None = None
    score: float = 0.0
    tokens: int = 2
    logprob: float = -1.0
    action: str | None = None


def path(*turns, tree=0, selected_by="naive", finished=True, success=False, score=0.0):
    """Return a trajectory whose prompts grow; equal nodes have equal tokens."""
    ids, made = [1], []
    for short in turns:
        spec = short if isinstance(short, Sampled) else Sampled(*short)
        tokens = tuple(10 + 5 * tree + spec.node + place for place in range(spec.tokens))
        more = {"node": spec.node, "state": spec.state, "score": spec.score, "action": spec.action}
        made.append(Turn(tuple(ids), tokens, (spec.logprob,) * spec.tokens, spec.reward, True, 1, **more))
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
    result = {}
    for number, turns, values in zip(batch.trajectory.tolist(), batch.turn.tolist(), advantages.tolist(), strict=True):
        for turn, value in zip(turns, values, strict=True):
            if turn >= 0:
                assert result.setdefault((number, turn), value) == value
    return [
        [value for (its, _), value in sorted(result.items()) if its == number]
        for number in range(batch.num_trajectories)
    ]


def flat(lists):
    return list(chain.from_iterable(lists))


def by_trajectory(batch, advantages):
    """Return each trajectory's advantage, after a look that all of its turns have the same."""
    result = []
    for turns in by_turn(batch, advantages):
        assert len(set(turns)) == 1
        result.append(turns[0])
    return result


def random_groups(seed, *, groups=3, trees=2, depth=4, chains=False, kinds=False):
    """Return groups of random trees in which every leaf is a trajectory; rewards lie on any turn."""
    draw = torch.Generator().manual_seed(seed)

    def number(low, high):
        return int(torch.randint(low, high, (), generator=draw))

    def sampled(node):
        state = bytes([number(0, 4)]) if number(0, 5) else None
        return Sampled(node, number(-2, 5) / 4, state, number(0, 5) / 2, number(1, 4), -number(1, 9) / 4)

    def grow(turns, nodes):
        """Return the paths below some turns; `nodes` counts on."""
        if turns and (len(turns) == depth or number(0, 4) == 0):
            return [turns]
        children = [sampled(next(nodes)) for _ in range(1 if chains else number(1, 4))]
        return flat(grow([*turns, child], nodes) for child in children)

    result = []
    for task in range(groups):
        leaves = []
        for tree in range(number(2, 6) if chains else number(1, trees + 1)):
            for turns in grow([], count(1)):
                kind = "beam" if kinds and number(0, 2) else "naive"
                leaves.append(path(*turns, tree=tree, selected_by=kind))
        result.append(Group(task, tuple(leaves)))
    return result
