"""Batch: two short episodes put into tensors by hand."""

from dataclasses import replace

import pytest
import torch

from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.batch import collate


def turn(prompt, answer, reward, *logprobs):
    return Turn(tuple(prompt), tuple(answer), tuple(logprobs), reward, is_valid=True, num_actions=1)


def episode(*turns):
    return Trajectory(turns, success=False, score=0.0, selected_by="naive")


# The second prompt extends the first with its answer: one sequence.
GROWING = episode(turn([1, 2], [3, 4], 0.5, -0.25, -0.5), turn([1, 2, 3, 4, 5], [6], 2.0, -0.75))
# Each prompt begins anew: a sequence per turn.
ANEW = episode(turn([1, 2], [7], -0.5, -1.0), turn([9], [8, 7], 1.0, -1.25, -1.5))
Y, N = True, False


def test_an_episode_whose_prompts_grow_is_one_row_and_another_one_row_per_turn():
    batch = collate([Group(5, (GROWING, ANEW)), Group(6, (ANEW,))])
    anew = [[1, 2, 7, 0, 0, 0], [9, 8, 7, 0, 0, 0]]
    assert batch.ids.tolist() == [[1, 2, 3, 4, 5, 6], *anew, *anew]
    assert batch.present.tolist() == [[Y] * 6, *[[Y, Y, Y, N, N, N]] * 4]
    one, two = [N, N, Y, N, N, N], [N, Y, Y, N, N, N]
    assert batch.sampled.tolist() == [[N, N, Y, Y, N, Y], one, two, one, two]
    logprobs = [[0, 0, -0.25, -0.5, 0, -0.75], [0, 0, -1, 0, 0, 0], [0, -1.25, -1.5, 0, 0, 0]]
    assert batch.old_logprobs[:3].tolist() == logprobs
    # A turn's reward stands on the last token of its answer.
    assert batch.rewards[:3].tolist() == [[0, 0, 0, 0.5, 0, 2], [0, 0, -0.5, 0, 0, 0], [0, 0, 1, 0, 0, 0]]
    assert batch.turn[:3].tolist() == [[-1, -1, 0, 0, -1, 1], [-1, -1, 0, -1, -1, -1], [-1, 1, 1, -1, -1, -1]]
    assert batch.trajectory.tolist() == [0, 1, 1, 2, 2]
    assert (batch.group.tolist(), batch.num_trajectories) == ([0, 0, 0, 1, 1], 3)
    assert batch.values is None


def test_a_row_continues_only_where_the_whole_sequence_before_is_its_beginning():
    # The prompt of the second turn lacks the last sampled token, as after a window has moved.
    (moved,) = [episode(turn([1, 2], [3, 4], 0.0, -1.0, -1.0), turn([1, 2, 3, 5], [6], 0.0, -1.0))]
    assert collate([Group(0, (moved,))]).ids.tolist() == [[1, 2, 3, 4, 0], [1, 2, 3, 5, 6]]
    mixed = episode(turn([1], [2], 0.0, -1.0), turn([1, 2, 3], [4], 0.0, -1.0), turn([8], [9], 0.0, -1.0))
    assert collate([Group(0, (mixed,))]).ids.tolist() == [[1, 2, 3, 4], [8, 9, 0, 0]]


def test_a_silent_turn_has_no_row_and_what_it_earned_stays_in_the_return():
    silent = episode(turn([1, 2], [], -0.1), turn([3], [4], 1.0, -1.0))
    batch = collate([Group(0, (silent, episode(turn([1], [], 0.0)), GROWING))])
    assert batch.ids[0].tolist() == [3, 4, 0, 0, 0, 0]
    # Trajectories are numbered without gaps.
    assert batch.trajectory.tolist() == [0, 1]
    silent, answer = turn([1, 2], [], -0.1), turn([3], [4], 1.0, -1.0)
    batch = collate([Group(0, (episode(silent, answer, silent, silent), episode(answer, silent, answer)))])
    # Added to the turn before it, or after it if it is the first.
    assert batch.rewards[batch.sampled].tolist() == pytest.approx([0.7, 0.9, 1.0])
    assert batch.turn[batch.sampled].tolist() == [1, 0, 2]
    answer = episode(turn([3], [4], 1.0, -1.0))
    batch = collate([Group(0, (answer,)), Group(1, (episode(turn([1], [], 0.0)),)), Group(2, (answer, answer))])
    assert batch.group.tolist() == [0, 1, 1]


def at(node, answer, reward=0.0, state=None, score=0.0):
    return replace(turn([1], answer, reward, *[-1.0] * len(answer)), node=node, state=state, score=score)


def grown(*turns, tree=0, selected_by="naive", finished=True):
    """Return an episode whose prompts grow."""
    ids, made = [1], []
    for one in turns:
        made.append(replace(one, prompt_ids=tuple(ids)))
        ids = [*ids, *one.token_ids, 0]
    return Trajectory(tuple(made), False, 0.0, selected_by, tree, finished)


def test_a_turn_that_two_trajectories_share_has_one_number_and_others_have_their_own():
    first, second = grown(at(1, [5]), at(2, [6, 7])), grown(at(1, [5]), at(3, [8]))
    elsewhere = grown(at(1, [5]), tree=1)
    batch = collate([Group(0, (first, second, elsewhere)), Group(1, (first,))])
    node, parent = batch.node.tolist(), batch.parent.tolist()
    assert batch.node[~batch.sampled].unique().tolist() == [-1] == batch.parent[~batch.sampled].unique().tolist()
    assert batch.tree.tolist() == [0, 0, 1, 2]
    # Columns: prompt, first turn, observation, second turn.
    assert node[0][1] == node[1][1]
    assert node[0][3] == node[0][4] != node[1][3]
    assert len({node[0][1], node[0][3], node[1][3], node[2][1], node[3][1], node[3][3]}) == 6
    # Parents of first turns are roots, one per tree; of others the node before.
    assert parent[0][1] == parent[1][1]
    assert len({parent[0][1], parent[2][1], parent[3][1]} | {number for row in node for number in row}) == 3 + 6 + 1
    assert parent[0][3] == parent[1][3] == node[0][1]
    assert parent[3][3] == node[3][1]


def test_turns_without_a_tree_are_single_and_children_of_a_silent_turn_get_its_parent():
    batch = collate([Group(0, (GROWING, GROWING))])
    numbers = batch.node[batch.sampled].tolist()
    assert len(set(numbers)) == 4
    assert batch.parent[0, 2] == batch.parent[1, 2] not in numbers
    assert batch.parent[1, 5] == batch.node[1, 2]
    batch = collate([Group(0, (grown(at(1, [5]), at(2, []), at(3, [6])), grown(at(2, []), at(4, [7]))))])
    assert batch.parent[0, 4] == batch.node[0, 1]
    assert batch.parent[1, 2] == batch.parent[0, 1]


def test_states_have_the_same_number_where_they_are_the_same_in_a_group():
    one = grown(at(1, [5, 5], state=b"s"), at(2, [6], state=b"t"), at(3, [7]))
    batch = collate([Group(0, (one, grown(at(4, [8], state=b"t")))), Group(1, (one,))])
    state = batch.state
    assert state[0][batch.sampled[0]].tolist() == [0, 0, 1, -1]
    assert state[1][batch.sampled[1]].tolist() == [1]
    assert set(state[2][batch.sampled[2]].tolist()) & {0, 1} == set()
    assert (state[~batch.sampled] == -1).all()


def test_a_row_has_its_trajectorys_selection_end_and_scores():
    kinds = [grown(at(1, [5])), grown(at(2, [6]), selected_by="beam"), grown(at(3, [7]), finished=False)]
    kinds[1] = replace(kinds[1], success=True)
    batch = collate([Group(0, tuple(kinds))])
    assert batch.searched.tolist() == [False, True, False]
    assert batch.finished.tolist() == [True, True, False]
    assert batch.solved.tolist() == [False, True, False]
    batch = collate([Group(0, (grown(at(1, [5, 6], score=2.0), at(2, [7], score=-1.0)),))])
    assert batch.scores.tolist() == [[0, 0, 2, 0, -1]]


def test_unknown_layouts_and_batches_without_sampled_tokens_are_refused():
    with pytest.raises(ValueError, match="wanted layout"):
        collate([Group(0, (GROWING,))], layout="round")
    with pytest.raises(ValueError, match="at least one trajectory with sampled tokens"):
        collate([Group(0, (episode(turn([1], [], 0.0)),))])
    with pytest.raises(ValueError, match="at least one trajectory"):
        collate([])


def test_some_rows_are_cut_to_the_longest_of_them_and_keep_their_numbers():
    part = collate([Group(5, (GROWING, ANEW)), Group(6, (ANEW,))]).rows(torch.tensor([4, 1]))
    assert part.ids.tolist() == [[9, 8, 7], [1, 2, 7]]
    assert part.turn.tolist() == [[-1, 1, 1], [-1, -1, 0]]
    assert (part.trajectory.tolist(), part.group.tolist()) == ([2, 1], [1, 0])
    assert part.values is None


def test_values_go_with_their_rows_and_devices():
    batch = collate([Group(5, (GROWING, ANEW))])
    values = torch.arange(18.0).reshape(3, 6)
    whole = replace(batch, values=values)
    assert whole.rows(torch.tensor([2])).values.tolist() == [[12.0, 13.0, 14.0]]
    assert whole.to("meta").values.device.type == "meta"
    assert batch.to("meta").values is None
