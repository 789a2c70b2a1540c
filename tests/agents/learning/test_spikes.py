"""The spike rule against norms whose median and scatter are known."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym import ConfigError, TrainingDiverged
from tsr_gym.agents.learning.spikes import GradientMemory, SpikeRule, require_finite

STEADY = GradientMemory((1.0, 1.2, 0.8, 1.1, 0.9))


def test_numbers_that_are_not_finite_are_named():
    require_finite({"loss": 1.0}, where="update 3")
    numbers = {"loss": 0.0, "entropy": float("nan"), "kl": float("-inf")}
    with pytest.raises(TrainingDiverged, match=r"update 3: entropy = nan, kl = -inf: lower the learning rate"):
        require_finite(numbers, where="update 3", advice="lower the learning rate")
    for norm in (float("nan"), float("inf")):
        with pytest.raises(TrainingDiverged, match="gradient norm = "):
            SpikeRule().judge(STEADY, norm)


def test_the_limit_is_so_many_scatters_above_the_median():
    # Median 1; distances 0, 0.2, 0.2, 0.1, 0.1 have the median 0.1.
    rule = SpikeRule(warm_up=5, factor=4.0, floor=0.0)
    assert rule.limit(STEADY) == pytest.approx(1.0 + 4.0 * 1.4826 * 0.1)
    # A tenth of the median is more than the scatter.
    assert SpikeRule(warm_up=5, factor=4.0, floor=0.2).limit(STEADY) == pytest.approx(1.8)


def test_a_spike_is_reported_and_remembered_among_the_last_norms_which_few_spikes_do_not_spoil():
    rule = SpikeRule(warm_up=5, factor=4.0, floor=0.2)
    calm, wild = rule.judge(STEADY, 1.7), rule.judge(STEADY, 1.9)
    assert (calm.is_spike, wild.is_spike, wild.skip) == (False, True, False)
    assert wild.memory.norms == (*STEADY.norms, 1.9)
    rule = SpikeRule(window=3, warm_up=2)
    assert rule.judge(STEADY, 2.0).memory.norms == (1.1, 0.9, 2.0)
    rule = SpikeRule(warm_up=5, window=9)
    spoilt = GradientMemory((*STEADY.norms, 100.0, 1000.0))
    assert rule.limit(spoilt) < 5 * rule.limit(STEADY)
    assert rule.judge(spoilt, 50.0).is_spike


def test_before_there_is_something_to_compare_with_nothing_is_a_spike():
    rule = SpikeRule(warm_up=6)
    assert not rule.judge(STEADY, 1e9).is_spike
    assert rule.limit(GradientMemory()) == float("inf")
    # Where nothing pulled at all there is no scale.
    assert not SpikeRule(warm_up=2).judge(GradientMemory((0.0, 0.0, 0.0)), 5.0).is_spike


def test_steps_that_spike_may_be_skipped_but_not_forever():
    rule = SpikeRule(warm_up=5, skip=True, max_skips=2)
    memory, skipped = STEADY, []
    for _ in range(4):
        judgement = rule.judge(memory, 50.0)
        skipped.append(judgement.skip)
        memory = judgement.memory
    # Larger gradients that stay are no spike: the third is taken, the old norms forgotten, the rule warms up anew.
    assert skipped == [True, True, False, False]
    assert memory == GradientMemory((50.0, 50.0))
    memory = rule.judge(STEADY, 50.0).memory
    assert memory == GradientMemory(STEADY.norms, 1)
    assert rule.judge(memory, 1.0).memory == GradientMemory((*STEADY.norms, 1.0), 0)


@pytest.mark.parametrize(
    "settings", [{"window": 0}, {"warm_up": 0}, {"max_skips": 0}, {"factor": 0.0}, {"floor": -1.0}]
)
def test_a_rule_that_makes_no_sense_is_refused(settings):
    with pytest.raises(ConfigError, match=r"^wanted "):
        SpikeRule(**settings)


@given(st.lists(st.floats(0, 1e6), max_size=70), st.integers(0, 3))
def test_the_memory_goes_through_a_checkpoint_as_it_is(norms, skipped):
    memory = GradientMemory(tuple(norms), skipped)
    assert GradientMemory.from_json(json.loads(json.dumps(memory.to_json()))) == memory
