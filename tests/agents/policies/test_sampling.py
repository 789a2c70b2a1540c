"""Sampling: the random numbers against SplitMix64 in plain Python, the draws against the distribution."""

import math

import pytest
import torch

from tsr_gym.agents.policies.transformers_engine import sample_tokens, uniforms

M = 2**64 - 1


def splitmix64(seed, number):
    """Return the outputs of Steele, Lea and Flood's generator, in unsigned arithmetic."""
    state, found = seed & M, []
    for _ in range(number):
        state = (state + 0x9E3779B97F4A7C15) & M
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
        found.append(z ^ (z >> 31))
    return found


def test_the_twin_is_the_published_generator():
    # The first outputs for seed 1234567, as Rosetta Code and many test suites list them.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert splitmix64(1234567, 4) == published


@pytest.mark.parametrize("seed", [0, 1, 1234567, 2**63 - 1, 2**62 + 12345, -1, -(2**63)])
def test_the_uniform_numbers_are_the_top_53_bits_of_splitmix64(seed):
    expected = [output >> 11 for output in splitmix64(seed, 40)]
    found = [uniforms(torch.tensor([seed]), position).item() for position in range(40)]
    # Exact: a double holds 53 bits.
    assert [number * 2**53 for number in found] == expected
    assert all(0 <= number < 1 for number in found)


def test_a_number_depends_on_its_own_seed_alone():
    seeds = torch.tensor([5, 2**63 - 1, 7, 5])
    together = uniforms(seeds, 3)
    assert together[0] == together[3]
    assert together.tolist() == [uniforms(seeds[i : i + 1], 3).item() for i in range(4)]


LOGITS = torch.tensor([2.0, -1.0, 0.5, 0.0, 3.0, -4.0, 1.0])


def softmax(logits, temperature):
    """Return the probabilities, in plain Python."""
    powers = [math.exp(logit / temperature) for logit in logits.tolist()]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_are_distributed_as_the_softmax_says(temperature):
    number = 20_000
    rows = LOGITS.expand(number, -1)
    ids, _ = sample_tokens(rows, temperature, torch.arange(number), position=4)
    counts = torch.bincount(ids, minlength=len(LOGITS)).tolist()
    expected = [number * chance for chance in softmax(LOGITS, temperature)]
    # Cells with fewer than five expected draws are put together, as the test wants it.
    small = [i for i, wanted in enumerate(expected) if wanted < 5]
    cells = [(counts[i], expected[i]) for i in range(len(LOGITS)) if i not in small]
    if small:
        cells.append((sum(counts[i] for i in small), sum(expected[i] for i in small)))
    statistic = sum((count - wanted) ** 2 / wanted for count, wanted in cells)
    # The 99.9 % quantile of chi-square with 6 degrees of freedom is 22.5; fewer degrees have a smaller one.
    assert statistic < 22.5


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_the_log_probability_is_that_of_the_distribution_that_was_drawn_from(temperature):
    rows = LOGITS.expand(500, -1)
    ids, logprobs = sample_tokens(rows, temperature, torch.arange(500), position=0)
    expected = [math.log(softmax(LOGITS, temperature)[token]) for token in ids.tolist()]
    assert logprobs.tolist() == pytest.approx(expected, abs=1e-6)


def test_the_draw_is_the_inverse_of_the_cumulative_distribution():
    # Four equal tokens: a uniform number of 0.6 is the third quarter.
    rows = torch.zeros(200, 4)
    ids, _ = sample_tokens(rows, 1.0, torch.arange(200), position=9)
    expected = [int(4 * (splitmix64(seed, 10)[9] / 2**64)) for seed in range(200)]
    assert ids.tolist() == expected


def test_temperature_zero_takes_the_most_likely_token():
    rows = torch.stack([LOGITS, LOGITS.flip(0)])
    ids, logprobs = sample_tokens(rows, 0, torch.tensor([1, 2]), position=0)
    assert ids.tolist() == [4, 2]
    assert logprobs.tolist() == [0.0, 0.0]


def test_impossible_tokens_are_never_drawn():
    rows = torch.tensor([[0.0, -math.inf, 0.0, -math.inf]]).expand(3000, -1)
    ids, logprobs = sample_tokens(rows, 1.0, torch.arange(3000), position=0)
    assert set(ids.tolist()) == {0, 2}
    assert logprobs.tolist() == pytest.approx([math.log(0.5)] * 3000, abs=1e-6)


def test_half_precision_logits_are_sampled_in_full_precision():
    rows = LOGITS.bfloat16()[None]
    _, logprobs = sample_tokens(rows, 1.0, torch.tensor([3]), position=0)
    assert logprobs.dtype == torch.float32
