"""Rows for trainers of others: the rewards and advantages of a batch beside the tokens that they are of."""

import torch

from tsr_gym.agents.bridges.trained_rows import drawn_evenly, trained_rows
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn


def turn(prompt, said, reward):
    return Turn(tuple(prompt), tuple(said), (-0.5,) * len(said), reward, True, 1)


GROWING = Trajectory((turn([1, 2], [3, 4], 0.5), turn([1, 2, 3, 4, 5], [6], 2.0)), True, 0.0, "naive")
WINDOW = Trajectory((turn([1], [2], 1.0), turn([7, 8], [9, 9], 0.25)), False, 0.0, "naive")
SILENT = Trajectory((turn([1], [], 3.0),), False, 0.0, "naive")


def places(batch):
    """Return as the advantage of each sampled token its place in its row, and the number of its row in tenths."""
    rows, length = batch.ids.shape
    return (torch.arange(length) + 0.1 * torch.arange(rows)[:, None]) * batch.sampled


def test_rewards_and_advantages_stand_beside_their_tokens():
    first, second = trained_rows([Group(4, (GROWING, SILENT, WINDOW)), Group(5, (WINDOW,))], places)
    assert [len(rows) for rows in first] == [1, 2]
    (growing,), (before, after) = first
    assert growing.row.input_ids == (1, 2, 3, 4, 5, 6)
    assert growing.rewards == [0.0, 0.0, 0.0, 0.5, 0.0, 2.0]
    assert growing.advantages == [0.0, 0.0, 2.0, 3.0, 0.0, 5.0]
    assert [before.row.input_ids, after.row.input_ids] == [(1, 2), (7, 8, 9, 9)]
    assert [before.rewards, after.rewards] == [[0.0, 1.0], [0.0, 0.0, 0.0, 0.25]]
    assert torch.allclose(torch.tensor(after.advantages), torch.tensor([0.0, 0.0, 2.2, 3.2]))
    assert [one.row.task for rows in second for one in rows] == [5, 5]


def test_without_an_estimator_there_are_no_advantages_and_without_tokens_no_rows():
    ((rows,),) = trained_rows([Group(4, (GROWING,))], None)
    assert rows[0].advantages is None
    assert trained_rows([Group(4, (SILENT,)), Group(5, ())], places) == [[], []]


def test_what_is_too_much_is_drawn_evenly_in_order_and_always_alike():
    assert drawn_evenly("abc", 3, 7) == ["a", "b", "c"]
    assert drawn_evenly("abc", 5, 7) == ["a", "b", "c"]
    drawn = [drawn_evenly("abcd", 2, seed) for seed in range(400)]
    assert all(one == sorted(one) and len({*one}) == 2 for one in drawn)
    assert drawn[5] == drawn_evenly("abcd", 2, 5)
    counts = [sum(letter in one for one in drawn) for letter in "abcd"]
    assert all(150 < count < 250 for count in counts)
