"""What tokens count, in batches small enough to count on fingers."""

from dataclasses import replace

import pytest
import torch

from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.losses import sequence_units, step_weights, token_weights, turn_units
from tsr_gym.agents.learning.settings import Objective

AGGREGATIONS = ("sequence", "turn", "token", "constant")


def three_tokens_and_one():
    """One trajectory of three sampled tokens, two and one, in two rows; one of one token."""
    first = episode(turn([1], [2, 3], 0.0, -1.0, -1.0), turn([5], [6], 0.0, -1.0))
    return collate([Group(0, (first, episode(turn([1], [2], 0.0, -1.0))))])


def growing():
    """The same two trajectories, each in one row."""
    first = episode(turn([1], [2, 3], 0.0, -1.0, -1.0), turn([1, 2, 3, 5], [6], 0.0, -1.0))
    return collate([Group(0, (first, episode(turn([1], [2], 0.0, -1.0))))])


EXPECTED = {
    "sequence": [1 / 6, 1 / 6, 1 / 6, 1 / 2],
    # Half for each trajectory, a quarter for each turn of the first.
    "turn": [1 / 8, 1 / 8, 1 / 4, 1 / 2],
    "token": [1 / 4] * 4,
    # Two trajectories of at most ten tokens.
    "constant": [1 / 20] * 4,
}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("make", [three_tokens_and_one, growing])
def test_what_counts_the_same(aggregation, make):
    batch = make()
    weights = token_weights(batch, aggregation, longest=10)
    assert weights[batch.sampled].tolist() == pytest.approx(EXPECTED[aggregation])
    assert torch.count_nonzero(weights[~batch.sampled]) == 0


def test_the_weights_of_some_trajectories_sum_to_one_as_well():
    # Rows 0 and 1 are trajectory 0; of the whole it would count half.
    part = three_tokens_and_one().rows(torch.tensor([0, 1]))
    for aggregation in ("sequence", "turn", "token"):
        assert token_weights(part, aggregation).sum().item() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="wanted at least 1, got None"):
        token_weights(part, "constant")
    last = three_tokens_and_one().rows(torch.tensor([2]))
    assert token_weights(last, "sequence")[last.sampled].tolist() == [1.0]


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        # Together 3 + 1 shares.
        ("sequence", [3 / 4 / 3] * 3 + [1 / 4]),
        ("turn", [3 / 4 / 4, 3 / 4 / 4, 3 / 4 / 2, 1 / 4]),
        # Three tokens that count 3 and one that counts 1.
        ("token", [3 / 10] * 3 + [1 / 10]),
        ("constant", [3 / 20] * 3 + [1 / 20]),
    ],
)
def test_a_trajectory_may_count_more_than_another(aggregation, expected):
    batch = three_tokens_and_one()
    weights = token_weights(batch, aggregation, counts=torch.tensor([3.0, 3.0, 1.0]), longest=10)
    assert weights[batch.sampled].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_trajectory_that_counts_nothing_is_as_if_it_were_not_there(aggregation):
    batch = three_tokens_and_one()
    weights = token_weights(batch, aggregation, counts=torch.tensor([0.0, 0.0, 1.0]), longest=10)
    alone = batch.rows(torch.tensor([2]))
    assert weights[2, :2].tolist() == token_weights(alone, aggregation, longest=10)[0].tolist()
    assert torch.count_nonzero(weights[:2]) == 0
    nothing = token_weights(batch, aggregation, counts=torch.zeros(3), longest=10)
    assert torch.count_nonzero(nothing) == 0
    assert nothing.isfinite().all()


def test_turns_and_sequences_have_numbers_where_something_was_sampled():
    batch = three_tokens_and_one()
    turns, sequences = turn_units(batch), sequence_units(batch)
    assert sequences.tolist() == [[-1, 0, 0], [-1, 0, -1], [-1, 1, -1]]
    assert [len(set(turns[batch.sampled].tolist())), len(set(turns[0].tolist()))] == [3, 2]
    assert turns[~batch.sampled].tolist() == [-1] * 5
    # A turn's number does not depend on the row that it is in.
    assert sorted(turn_units(growing())[growing().sampled].tolist()) == sorted(turns[batch.sampled].tolist())


def searched_and_not():
    return replace(growing(), searched=torch.tensor([True, False]))


def test_searched_trajectories_count_as_much_as_the_objective_says():
    batch = searched_and_not()
    weights = step_weights(Objective(searched_weight=0.5), batch)
    # Shares of 0.5 and 1.
    assert weights.policy[batch.sampled].tolist() == pytest.approx([1 / 9] * 3 + [2 / 3])
    assert weights.imitation is None
    factors = step_weights(Objective(searched_weight=0.5), replace(batch, counts=torch.tensor([4.0, 1.0])))
    assert factors.policy[batch.sampled].tolist() == pytest.approx([2 / 9] * 3 + [1 / 3])


def test_searched_successes_are_imitated_and_the_rest_is_left_to_the_policy_gradient():
    objective = Objective(searched_weight=0.0, imitation=0.1)
    batch = searched_and_not()
    weights = step_weights(objective, replace(batch, solved=torch.tensor([True, True])))
    assert weights.policy[batch.sampled].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert weights.imitation[batch.sampled].tolist() == pytest.approx([1 / 3] * 3 + [0.0])
    none = step_weights(objective, replace(batch, solved=torch.tensor([False, True])))
    assert torch.count_nonzero(none.imitation) == 0


@pytest.mark.parametrize(
    ("imitated", "aggregation", "wanted"),
    [
        ("alike", "sequence", 3.0),
        ("alike", "token", 8 / 3),
        ("expansions", "sequence", 2.5),
        ("expansions", "token", 16 / 7),
        # Levin's sum over solutions of N * -log pi, over two trajectories of at most ten tokens.
        ("expansions", "constant", (30 * 4 + 10 * 4) / 20),
    ],
)
def test_a_solution_is_imitated_as_much_as_its_search_expanded(imitated, aggregation, wanted):
    failure = solution(4, expansions=99, success=False)
    solutions = Group(0, (solution(2, expansions=30), solution(1, expansions=10), failure))
    plain = Group(1, (replace(solution(3, expansions=0), selected_by="naive"),))
    batch = collate([solutions, plain])
    objective = Objective(imitation=1.0, imitated=imitated, aggregation=aggregation, longest=10)
    weights = step_weights(objective, batch).imitation
    # Minus the log-probabilities of the first solution, the second, and of what is not imitated.
    surprise = torch.tensor([1.0, 3.0, 4.0, *[9.0] * 7])
    assert (weights[batch.sampled] * surprise).sum().item() == pytest.approx(wanted)
    assert torch.count_nonzero(weights[2:]) == 0


def solution(tokens, *, expansions, success=True):
    """Return an episode of one turn that a search has selected."""
    trajectory = episode(turn([1, 2], [7] * tokens, 0.0, *[-1.0] * tokens))
    return replace(trajectory, selected_by="levin", success=success, expansions=expansions)
