"""Batch: two short episodes put into tensors by hand."""

import pytest
import torch

from tsr_gym.agents.batch import Batch, collate
from tsr_gym.agents.trajectory import Group, Trajectory, Turn


def turn(prompt, said, reward, *logprobs):
    return Turn(tuple(prompt), tuple(said), tuple(logprobs), reward, is_valid=True, num_actions=1)


def episode(*turns):
    return Trajectory(turns, success=False, score=0.0, selected_by="naive")


# The second prompt goes on where the first answer ended: one sequence.
GROWING = episode(turn([1, 2], [3, 4], 0.5, -0.25, -0.5), turn([1, 2, 3, 4, 5], [6], 2.0, -0.75))
# Each prompt begins anew: a sequence per turn.
ANEW = episode(turn([1, 2], [7], -0.5, -1.0), turn([9], [8, 7], 1.0, -1.25, -1.5))
Y, N = True, False


def test_an_episode_whose_prompts_grow_is_one_row_and_another_one_row_per_turn():
    batch = collate([Group(5, (GROWING, ANEW)), Group(6, (ANEW,))])
    assert batch.ids.tolist() == [
        [1, 2, 3, 4, 5, 6],
        [1, 2, 7, 0, 0, 0],
        [9, 8, 7, 0, 0, 0],
        [1, 2, 7, 0, 0, 0],
        [9, 8, 7, 0, 0, 0],
    ]
    assert batch.present.tolist() == [[Y] * 6, *[[Y, Y, Y, N, N, N]] * 4]
    one, two = [N, N, Y, N, N, N], [N, Y, Y, N, N, N]
    assert batch.sampled.tolist() == [[N, N, Y, Y, N, Y], one, two, one, two]
    assert batch.old_logprobs[:3].tolist() == [
        [0.0, 0.0, -0.25, -0.5, 0.0, -0.75],
        [0.0, 0.0, -1.0, 0.0, 0.0, 0.0],
        [0.0, -1.25, -1.5, 0.0, 0.0, 0.0],
    ]
    # A turn's reward stands on the last token of its answer.
    assert batch.rewards[:3].tolist() == [
        [0.0, 0.0, 0.0, 0.5, 0.0, 2.0],
        [0.0, 0.0, -0.5, 0.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
    ]
    assert batch.turn[:3].tolist() == [[-1, -1, 0, 0, -1, 1], [-1, -1, 0, -1, -1, -1], [-1, 1, 1, -1, -1, -1]]
    assert batch.trajectory.tolist() == [0, 1, 1, 2, 2]
    assert batch.group.tolist() == [0, 0, 0, 1, 1]
    assert batch.num_trajectories == 3
    assert batch.values is None


def test_a_row_goes_on_only_where_the_whole_sequence_before_is_its_beginning():
    # The prompt of the second turn lacks the last token said, as a window that moved on would.
    (moved,) = [episode(turn([1, 2], [3, 4], 0.0, -1.0, -1.0), turn([1, 2, 3, 5], [6], 0.0, -1.0))]
    assert collate([Group(0, (moved,))]).ids.tolist() == [[1, 2, 3, 4, 0], [1, 2, 3, 5, 6]]
    mixed = episode(turn([1], [2], 0.0, -1.0), turn([1, 2, 3], [4], 0.0, -1.0), turn([8], [9], 0.0, -1.0))
    assert collate([Group(0, (mixed,))]).ids.tolist() == [[1, 2, 3, 4], [8, 9, 0, 0]]


def test_a_turn_without_a_word_has_no_row():
    silent = episode(turn([1, 2], [], -0.1), turn([3], [4], 1.0, -1.0))
    batch = collate([Group(0, (silent, episode(turn([1], [], 0.0)), GROWING))])
    assert batch.ids[0].tolist() == [3, 4, 0, 0, 0, 0]
    # Trajectories are numbered without gaps.
    assert batch.trajectory.tolist() == [0, 1]


def test_where_nothing_was_said_there_is_no_batch():
    with pytest.raises(ValueError, match="at least one trajectory with sampled tokens"):
        collate([Group(0, (episode(turn([1], [], 0.0)),))])
    with pytest.raises(ValueError, match="at least one trajectory"):
        collate([])


def test_some_rows_are_cut_to_the_longest_of_them_and_keep_their_numbers():
    batch = collate([Group(5, (GROWING, ANEW)), Group(6, (ANEW,))])
    part = batch.rows(torch.tensor([4, 1]))
    assert part.ids.tolist() == [[9, 8, 7], [1, 2, 7]]
    assert part.turn.tolist() == [[-1, 1, 1], [-1, -1, 0]]
    assert part.trajectory.tolist() == [2, 1]
    assert part.group.tolist() == [1, 0]
    assert part.values is None


def test_values_go_with_their_rows_and_devices():
    batch = collate([Group(5, (GROWING, ANEW))])
    values = torch.arange(18.0).reshape(3, 6)
    whole = Batch(
        **{name: getattr(batch, name) for name in Batch.__dataclass_fields__ if name != "values"}, values=values
    )
    assert whole.rows(torch.tensor([2])).values.tolist() == [[12.0, 13.0, 14.0]]
    assert whole.to("meta").values.device.type == "meta"
    assert batch.to("meta").values is None
