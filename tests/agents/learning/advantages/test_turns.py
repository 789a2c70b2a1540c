"""Advantages of turns against numbers worked out by hand: like turns compared, and GAE with a critic."""

from dataclasses import replace
from math import sqrt

import pytest
import torch

from tests.agents.learning.advantages.forests import Sampled, batch_of, by_turn, flat, path, random_groups
from tests.agents.learning.test_batch import episode, turn
from tests.conftest import seeds
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import (
    bi_level_gae,
    gae,
    gigpo,
    mt_grpo,
    tspo,
    turn_gae,
    turn_value_targets,
    value_targets,
)
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.lessons.credit import first_occurrence


def with_values(batch, *values):
    """Return the batch with values on its sampled tokens, in their order, and traps everywhere else."""
    filled = torch.full(batch.rewards.shape, 1000.0)
    filled[batch.sampled] = torch.tensor(values)
    return replace(batch, values=filled)


def ragged_values():
    """Three sampled tokens in one row, in two turns; then one token; then three tokens in two rows."""
    first = episode(turn([1, 2], [3, 4], 1.0, -1.0, -1.0), turn([1, 2, 3, 4, 5], [6], 2.0, -1.0))
    second = episode(turn([1], [2], -1.0, -1.0))
    third = episode(turn([1, 2, 3], [4, 5], 0.5, -1.0, -1.0), turn([9], [8], 4.0, -1.0))
    return with_values(collate([Group(0, (first, second)), Group(1, (third,))]), 0.5, 0.25, 1.0, 0.5, 2.0, 1.0, 3.0)


def test_with_gamma_and_lambda_1_it_is_the_return_to_come_minus_the_value_and_the_target_the_return():
    batch = ragged_values()
    advantages = gae(batch)
    # Returns to come: 3, 3, 2 | -1 | 4.5, 4.5, 4.
    expected = [3 - 0.5, 3 - 0.25, 2 - 1, -1 - 0.5, 4.5 - 2, 4.5 - 1, 4 - 3]
    assert advantages[batch.sampled].tolist() == pytest.approx(expected)
    assert torch.count_nonzero(advantages[~batch.sampled]) == 0
    targets = value_targets(batch, gae(batch))
    assert targets[batch.sampled].tolist() == pytest.approx([3.0, 3.0, 2.0, -1.0, 4.5, 4.5, 4.0])
    assert torch.count_nonzero(targets[~batch.sampled]) == 0


def test_with_other_gamma_and_lambda_by_hand():
    batch = ragged_values()
    actual = gae(batch, gamma=0.5, lam=0.5)[batch.sampled].tolist()
    # First trajectory, from its end, gamma lambda = 1/4:
    #   delta_3 = 2 - 1 = 1                          A_3 = 1
    #   delta_2 = 1 + 0.5 * 1 - 0.25 = 1.25          A_2 = 1.25 + 0.25 * 1 = 1.5
    #   delta_1 = 0 + 0.5 * 0.25 - 0.5 = -0.375      A_1 = -0.375 + 0.25 * 1.5 = 0
    # Second: -1 - 0.5 = -1.5.
    # Third, across its two rows:
    #   delta_3 = 4 - 3 = 1                          A_3 = 1
    #   delta_2 = 0.5 + 0.5 * 3 - 1 = 1              A_2 = 1 + 0.25 = 1.25
    #   delta_1 = 0 + 0.5 * 1 - 2 = -1.5             A_1 = -1.5 + 0.25 * 1.25 = -1.1875
    assert actual == pytest.approx([0.0, 1.5, 1.0, -1.5, -1.1875, 1.25, 1.0])


def by_loop(batch, gamma, lam):
    """Return the advantages by the definition: a double sum over a plain list of tokens per trajectory."""
    result = torch.zeros(batch.rewards.shape)
    for number in range(batch.num_trajectories):
        own = batch.sampled & (batch.trajectory == number)[:, None]
        places = [tuple(place) for place in own.nonzero().tolist()]
        rewards = [batch.rewards[place].item() for place in places]
        values = [batch.values[place].item() for place in places] + [0.0]
        deltas = [rewards[t] + gamma * values[t + 1] - values[t] for t in range(len(places))]
        for t, place in enumerate(places):
            result[place] = sum((gamma * lam) ** (later - t) * deltas[later] for later in range(t, len(places)))
    return result


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.7), (0.95, 0.0), (1.0, 0.5), (0.0, 0.9)])
def test_random_batches_against_the_definition(gamma, lam):
    draw = torch.Generator().manual_seed(int(100 * gamma + lam))

    def number(low, high):
        return int(torch.randint(low, high, (), generator=draw))

    for _ in range(6):
        trajectories = []
        for _ in range(number(1, 6)):
            turns, ids = [], [1]
            for _ in range(number(1, 5)):
                answer = [2] * number(1, 5)
                turns.append(turn(ids, answer, float(number(-3, 4)), *[-1.0] * len(answer)))
                # Half of the turns continue the row, half begin a new one.
                ids = [*ids, *answer, 3] if number(0, 2) else [7] * number(1, 4)
            trajectories.append(episode(*turns))
        batch = collate([Group(0, tuple(trajectories))])
        batch = replace(batch, values=torch.randn(batch.rewards.shape, generator=draw))
        torch.testing.assert_close(gae(batch, gamma=gamma, lam=lam), by_loop(batch, gamma, lam), atol=1e-5, rtol=1e-5)


def test_critics_values_are_required():
    for estimator in (gae, turn_gae, bi_level_gae):
        with pytest.raises(ValueError, match=r"wanted batch\.values"):
            estimator(batch_of([path((-1, 1.0))]))


def two():
    """Turns of 2, 1 and 2 tokens with rewards 1, 0, 2; and one turn of 2 tokens with reward -1."""
    first = path(Sampled(reward=1.0), Sampled(reward=0.0, tokens=1), Sampled(reward=2.0))
    batch = batch_of([first, path(Sampled(reward=-1.0))])
    # Values at first tokens: 0.5, 1, 2 and 0.25; those behind them do not count.
    return with_values(batch, 0.5, 7.0, 1.0, 2.0, 8.0, 0.25, 9.0)


def test_over_turns_by_hand():
    batch = two()
    assert by_turn(batch, turn_gae(batch)) == [[3 - 0.5, 2 - 1.0, 2 - 2.0], [-1 - 0.25]]
    # gamma 1/2, lambda 1/2, so gamma lambda is 1/4:
    #   delta_2 = 2 - 2 = 0                        A_2 = 0
    #   delta_1 = 0 + 0.5 * 2 - 1 = 0              A_1 = 0
    #   delta_0 = 1 + 0.5 * 1 - 0.5 = 1            A_0 = 1
    assert by_turn(batch, turn_gae(batch, gamma=0.5, lam=0.5)) == [[1.0, 0.0, 0.0], [-1.25]]
    # gamma 1, lambda 1/2: delta_2 = 0; delta_1 = 2 - 1 = 1; delta_0 = 1 + 1 - 0.5 = 1.5; A_0 = 1.5 + 0.5 * 1.
    assert by_turn(batch, turn_gae(batch, lam=0.5)) == [[2.0, 1.0, 0.0], [-1.25]]
    assert by_turn(batch, turn_value_targets(batch, turn_gae(batch))) == [[3.0, 2.0, 2.0], [-1.0]]
    spread = episode(turn([1], [2, 3], 1.0, -1, -1), turn([9], [4], 0.0, -1), turn([8], [5, 6], 2.0, -1, -1))
    batch = with_values(collate([Group(0, (spread,))]), 0.5, 7.0, 1.0, 2.0, 8.0)
    assert by_turn(batch, turn_gae(batch, lam=0.5)) == [[2.0, 1.0, 0.0]]


def test_turns_of_one_token_are_tokens():
    batch = batch_of([path(*[Sampled(reward=reward, tokens=1) for reward in (1.0, -0.5, 2.0)])])
    batch = with_values(batch, 0.3, 0.7, -0.2)
    for settings in ({}, {"gamma": 0.9, "lam": 0.8}):
        torch.testing.assert_close(turn_gae(batch, **settings), gae(batch, **settings))


def test_over_turns_and_over_tokens_by_hand():
    batch = batch_of([path(Sampled(reward=1.0), Sampled(reward=2.0, tokens=1))])
    batch = with_values(batch, 0.5, 1.0, 3.0)
    # Over turns, gamma_h = lambda = 1/2, values at the ends 1 and 3:
    #   A_1 = 2 - 3 = -1
    #   A_0 = 1 + 0.5 * 3 - 1 + 0.25 * -1 = 1.25
    # Within the first turn, gamma = 1: its end has 1.25; before it delta = 0 + 1 - 0.5, plus lambda times 1.25.
    actual = bi_level_gae(batch, gamma=1.0, lam=0.5, high_level_gamma=0.5)
    assert actual[batch.sampled].tolist() == [0.5 + 0.5 * 1.25, 1.25, -1.0]


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_with_one_discount_and_lambda_1_it_is_gae(seed):
    batch = collate(random_groups(seed))
    batch = replace(batch, values=torch.randn(batch.rewards.shape, generator=torch.Generator().manual_seed(seed)))
    actual = bi_level_gae(batch, gamma=1.0, lam=1.0, high_level_gamma=1.0)
    torch.testing.assert_close(actual, gae(batch), atol=1e-5, rtol=1e-5)


def test_a_turn_without_reward_has_an_end_too():
    # Values 0; only the last turn earns. Per turn the reward is discounted once.
    batch = with_values(batch_of([path((-1, 0.0), (-1, 0.0), (-1, 8.0))]), *[0.0] * 6)
    actual = bi_level_gae(batch, high_level_gamma=0.5)
    assert actual[batch.sampled].tolist() == [2.0, 2.0, 4.0, 4.0, 8.0, 8.0]


HALF = 1 / sqrt(2)


def test_a_turn_is_compared_with_the_same_turn_of_the_others():
    # Turn 0: 1, 1, 0, 0: mean 1/2, squares 4 * 1/4 over 3. Turn 1: 1, 0, 0, 0: mean 1/4, squares 9/16 + 3/16 over 3.
    batch = batch_of([path((-1, a), (-1, b)) for a, b in ((1.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.0, 0.0))])
    first, second = 0.5 / sqrt(1 / 3), [0.75 / 0.5, -0.25 / 0.5]
    expected = [[first, second[0]], [first, second[1]], [-first, second[1]], [-first, second[1]]]
    assert [pytest.approx(turns, abs=1e-5) for turns in expected] == by_turn(batch, tspo(batch))
    mean_only = by_turn(batch, tspo(batch, scale="none"))
    assert mean_only == [[0.5, 0.75], [0.5, -0.25], [-0.5, -0.25], [-0.5, -0.25]]


def ragged():
    """Three trajectories of 3, 2 and 1 turns."""
    return batch_of([path((-1, 1.0), (-1, 3.0), (-1, 5.0)), path((-1, 1.0), (-1, 1.0)), path((-1, 4.0))])


def test_ragged_turns_are_compared_with_those_that_are_there_or_with_what_takes_their_place():
    # Turn 0: 1, 1, 4: mean 2. Turn 1: 3, 1: mean 2. Turn 2 is alone.
    assert by_turn(ragged(), tspo(ragged(), scale="none")) == [[-1, 1, 0], [-1, -1], [2]]
    assert by_turn(ragged(), tspo(ragged()))[0] == pytest.approx([-1 / sqrt(3), HALF, 0], abs=1e-5)
    # Turn 1: 3, 1, 0 has the mean 4/3. Turn 2: 5, 0, 0 has 5/3.
    zero = by_turn(ragged(), tspo(ragged(), scale="none", ragged="zero"))
    assert flat(zero) == pytest.approx([-1, 5 / 3, 10 / 3, -1, -1 / 3, 2])
    # Turn 1: 3, 1, 4 has the mean 8/3. Turn 2: 5, 1, 4 has 10/3.
    last = by_turn(ragged(), tspo(ragged(), scale="none", ragged="last"))
    assert flat(last) == pytest.approx([-1, 1 / 3, 5 / 3, -1, -5 / 3, 2])


SHOWN, NOTHING = "by Paul Walker", "nothing"


def search(*results, answer=0.0, penalties=()):
    """Return a trajectory of searches and an answer, given the results of each search and the answer's reward."""
    rewards = [0.0] * len(results) + [answer]
    for number in penalties:
        rewards[number] -= 0.1
    made = path(*[(-1, reward) for reward in rewards], success=answer > 0)
    shown = [*results, ""]
    turns = tuple(replace(turn, observation=text) for turn, text in zip(made.turns, shown, strict=True))
    return replace(made, turns=turns)


def recipe(*trajectories, **choices):
    """Return the advantages of one group by `--estimator tspo --credit first_occurrence`."""
    group = first_occurrence(Group(0, trajectories), ("Paul Walker",))
    return by_turn(collate([group]), tspo(collate([group]), **choices))


def test_the_recipe_compares_a_group_that_only_failed_by_turns():
    # Rewards .5, .5, 0 | .5, 0, 0 | 0, 0, 0. Turn 0: mean 1/3, squares 2/36 + 4/36 over 2, deviation 1/sqrt(12).
    # Turn 1: mean 1/6, deviation 1/sqrt(12) again. The answers are all worth nothing.
    actual = recipe(search(NOTHING, SHOWN), search(SHOWN, NOTHING), search(NOTHING, NOTHING))
    near, far = sqrt(12) / 6, sqrt(12) / 3
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == [[near, far, 0], [near, -near, 0], [-far, -near, 0]]


def test_the_recipe_compares_a_mixed_group_by_whole_trajectories_and_learns_nothing_where_all_succeeded():
    # Returns 1, 0, 0: mean 1/3, deviation 1/sqrt 3; evidence that was shown makes no difference.
    actual = recipe(search(SHOWN, answer=1.0), search(SHOWN, NOTHING), search())
    right, wrong = 2 / 3 * sqrt(3), -1 / 3 * sqrt(3)
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == [[right] * 2, [wrong] * 3, [wrong]]
    assert recipe(search(SHOWN, answer=1.0), search(NOTHING, SHOWN, answer=1.0)) == [[0, 0], [0, 0, 0]]


def test_a_format_penalty_is_part_of_a_return_and_changes_no_comparison():
    # Returns 1, -0.1, 0: mean .3, squares .49 + .16 + .09 over 2.
    actual = recipe(search(SHOWN, answer=1.0), search(SHOWN, penalties=[0]), search(NOTHING))
    deviation = sqrt(0.74 / 2)
    wanted = [[worth / deviation] * 2 for worth in (0.7, -0.4, -0.3)]
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == wanted
    # Where all succeeded, it is the only difference: 1 and .9.
    actual = recipe(search(SHOWN, answer=1.0), search(SHOWN, answer=1.0, penalties=[0]))
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == [[HALF] * 2, [-HALF] * 2]
    # Where all failed, the rule puts its own rewards in place of the turns'.
    clean, fined = (search(SHOWN), search(NOTHING)), (search(SHOWN), search(NOTHING, penalties=[0]))
    assert recipe(*clean) == recipe(*fined) == [pytest.approx([HALF, 0], abs=1e-4), pytest.approx([-HALF, 0], abs=1e-4)]


def test_a_success_that_the_rule_sees_and_the_estimator_does_not_turns_the_sign_of_evidence():
    # What such runs would learn, and why they are refused. The rule leaves the group as it is, and the estimator then
    # compares turns by -.1 and 0: the one that found the answer is the worse one.
    paths = (search(SHOWN, penalties=[0]), search(NOTHING), search(SHOWN, answer=1.0))
    group = first_occurrence(Group(0, paths), ["x"])
    part = collate([group]).rows(torch.arange(2))
    assert by_turn(part, tspo(part)) == [pytest.approx([-HALF, 0], abs=1e-4), pytest.approx([HALF, 0], abs=1e-4)]
    # By the choice for all groups in both it is compared by evidence, .5 and 0.
    group = first_occurrence(group, ("Paul Walker",), groups="all")
    part = collate([group]).rows(torch.arange(2))
    actual = by_turn(part, tspo(part, groups="all"))
    assert actual == [pytest.approx([HALF, 0], abs=1e-4), pytest.approx([-HALF, 0], abs=1e-4)]


def test_all_groups_can_be_compared_by_turns():
    # For rules that reward the turns of every group.
    actual = recipe(search(SHOWN, answer=1.0), search(SHOWN), groups="all")
    assert [pytest.approx(turns, abs=1e-4) for turns in actual] == [[0, HALF], [0, -HALF]]
    batch = batch_of([path((-1, 1.0)), path((-1, 3.0))], [path((-1, 10.0)), path((-1, 20.0))])
    assert by_turn(batch, tspo(batch, scale="none")) == [[-1], [1], [-5], [5]]


SETTINGS = {"eps": 0.0}


def tool_calls():
    """Two trajectories with a tool call, worth 1 and 0, and one that answers at once; outcomes 1, 0, 1."""
    return batch_of([path((-1, 1.0), (-1, 1.0)), path((-1, 0.0), (-1, 0.0)), path((-1, 1.0))])


def test_mt_grpo_by_hand():
    # Outcomes 1, 0, 1: mean 2/3, squares 1/9 + 4/9 + 1/9 over 2, deviation 1/sqrt 3. Rewards of turn 0: 1, 0, and 0
    # for the one without a call: mean 1/3, the same deviation. Returns 2, 0, 1: mean 1, deviation 1.
    outcome, call = [1 / sqrt(3), -2 / sqrt(3)], [2 / sqrt(3), -1 / sqrt(3)]
    actual = by_turn(tool_calls(), mt_grpo(tool_calls(), **SETTINGS))
    wanted = [outcome[0] + call[0], outcome[0], outcome[1] + call[1], outcome[1], 0.0]
    assert flat(actual) == pytest.approx(wanted, abs=1e-6)
    half = by_turn(tool_calls(), mt_grpo(tool_calls(), turn_weight=0.5, **SETTINGS))
    assert half[0] == pytest.approx([outcome[0] + call[0] / 2, outcome[0]])
    actual = by_turn(tool_calls(), mt_grpo(tool_calls(), single_turn="outcome", **SETTINGS))
    assert actual[2] == pytest.approx([1 / sqrt(3)])
    # 1 and 0 alone: deviation 1/sqrt 2.
    actual = by_turn(tool_calls(), mt_grpo(tool_calls(), ragged="present", **SETTINGS))
    assert actual[0] == pytest.approx([1 / sqrt(3) + 1 / sqrt(2), 1 / sqrt(3)])
    batch = batch_of([path((-1, 1.0), (-1, 2.0), (-1, 0.0)), path((-1, 3.0), (-1, 8.0), (-1, 0.0))])
    half = 1 / sqrt(2)
    assert [pytest.approx([-half, -half, 0]), pytest.approx([half, half, 0])] == by_turn(batch, mt_grpo(batch, eps=0.0))
    batch = batch_of([path((-1, 0.0)), path((-1, 1e-3))])
    expected = 5e-4 / (1e-3 / sqrt(2) + 1e-4)
    assert flat(by_turn(batch, mt_grpo(batch))) == pytest.approx([-expected, expected], rel=1e-3)


def anchored():
    """Both begin in s and pass through t, the second one later; u is seen by the second alone; one state is unknown."""
    first = path((-1, 0.0, b"s"), (-1, 4.0, b"t"))
    second = path((-1, 1.0, b"s"), (-1, 0.0, b"u"), (-1, 1.0, b"t"), (-1, 2.0, None))
    return batch_of([first, second])


def test_gigpo_by_hand():
    # Returns 4 and 4. To come, with gamma 1/2: 2, 4; and 1 + 1/4 + 2/8 = 1.5, 1, 2, 2.
    # In s: 2 and 1.5, mean 1.75. In t: 4 and 2, mean 3.
    actual = by_turn(anchored(), gigpo(anchored(), gamma=0.5, scale="none"))
    assert actual == [[0.25, 1.0], [-0.25, 0.0, -1.0, 0.0]]
    assert by_turn(anchored(), gigpo(anchored(), gamma=0.5, scale="none", step_weight=2.0))[0] == [0.5, 2.0]
    # Two values always lie 1/sqrt 2 deviations off their mean.
    actual = by_turn(anchored(), gigpo(anchored(), gamma=0.5))
    half = 0.5**0.5
    assert actual == [pytest.approx([half, half], abs=1e-5), pytest.approx([-half, 0, -half, 0], abs=1e-5)]
    batch = batch_of([path((-1, 1.0, b"a")), path((-1, 0.0, b"b"), (-1, 4.0, b"c"))])
    # Mean of 1 and 4, or of 1, 4, 4.
    assert by_turn(batch, gigpo(batch, scale="none")) == [[-1.5], [1.5, 1.5]]
    assert by_turn(batch, gigpo(batch, scale="none", episodes="step")) == [[-2], [1, 1]]
    batch = batch_of([path((-1, 1.0, b"s"))], [path((-1, 3.0, b"s"))])
    assert by_turn(batch, gigpo(batch)) == [[0], [0]]
    batch = batch_of([path((-1, 3.0, b"s"))])
    assert by_turn(batch, gigpo(batch, alone="raw")) == [[3.0]]
