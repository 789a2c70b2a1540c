"""The rollout worker for TRL's asynchronous trainer without TRL: exact rows, weights between rounds, faults."""

import threading
import time

import pytest
import torch

from tests.agents.bridges import helpers  # noqa: F401 (registers the world)
from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tsr_gym import ConfigError, EngineFailed
from tsr_gym.agents.bridges.rows import Row, TrainedRow
from tsr_gym.agents.bridges.trl_worker import TsrRolloutWorker, async_rows
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.logprobs import token_logprobs
from tsr_gym.agents.models.settings import ModelCard, ModelConfig

MODEL = ModelConfig(max_tokens=5, prompt="plain", temperature=0.8)
LEAVES = SearchConfig(search="beam(width=2, branching=2)", trajectories=2, groups=1, learn_from="leaves")


def worker(estimator="tree_backup", search=LEAVES, seed=0, **more):
    tokenizer = chatml_tokenizer()
    policy = LanguageModel(random_qwen2(tokenizer, seed=seed), tokenizer, ModelCard())
    return TsrRolloutWorker(policy, "tests/Counting-v0", estimator=estimator, search=search, model=MODEL, **more)


def taken(searching, count):
    """Return some rows of a worker that searches."""
    return [searching.rollout_buffer.get(timeout=60) for _ in range(count)]


def check_row(model, row):
    """Compare the log-probabilities of a row's sampled tokens with those of a model."""
    ids, sampled = torch.tensor(row.input_ids)[None], torch.tensor(row.completion_mask)[None] > 0
    with torch.no_grad():
        wanted, _ = token_logprobs(model, ids, torch.ones_like(sampled), sampled, temperature=0.8)
    assert torch.allclose(wanted[sampled], torch.tensor(row.old_log_probs)[sampled[0]], atol=1e-4)


def row_of(mask, logprobs):
    """Return a row by hand."""
    ids = tuple(range(5, 5 + len(mask)))
    labels = tuple(token if own else -100 for token, own in zip(ids, mask, strict=True))
    return Row(3, 0, ids, labels, mask, logprobs, (1,), (5,), (0,), (1,), (2.0,), (0.0,), 2.0, 0.0, True, True, "beam")


def test_a_row_with_several_advantages_is_repeated_for_each_with_a_mask():
    row = row_of((0, 1, 1, 0, 1), (0.0, -0.1, -0.2, 0.0, -0.3))
    samples = list(async_rows(TrainedRow(row, [0.0] * 5, [0.0, 0.5, 0.5, 0.0, -1.0]), version=4, group=9))
    repeated = [(sample.advantage, sample.completion_mask.tolist()) for sample in samples]
    assert repeated == [(-1.0, [0, 0, 0, 0, 1]), (0.5, [0, 1, 1, 0, 0])]
    assert all(sample.input_ids.tolist() == [5, 6, 7, 8, 9] for sample in samples)
    assert all((sample.model_version, sample.group_id) == (4, 9) for sample in samples)
    assert samples[0].metrics == {"reward": 2.0, "success": 1.0, "turns": 1.0}
    # A sampled token with advantage 0 still counts in the number that the loss divides by.
    (zero,) = async_rows(TrainedRow(row, [0.0] * 5, [0.0] * 5), version=0, group=0)
    assert (zero.advantage, zero.completion_mask.tolist()) == (0.0, [0, 1, 1, 0, 1])


def test_rows_hold_the_sampled_tokens():
    searching = worker()
    searching.start()
    rows = taken(searching, 12)
    searching.stop()
    # Advantages of trees differ by turn.
    assert len({row.advantage for row in rows}) > 3
    for row in rows:
        check_row(searching.collector.policy.engine.model, row)


def test_weights_change_between_rounds_and_rows_have_their_version():
    searching = worker(most=4)
    searching.pause()
    searching.send_weights(iter(list(random_qwen2(chatml_tokenizer(), seed=1).named_parameters())))
    searching.start()
    time.sleep(0.1)
    assert searching.rollout_buffer.empty()
    searching.resume()
    searching.update_model_version(1)
    first = taken(searching, 2)
    assert {row.model_version for row in first} == {1}
    other = random_qwen2(chatml_tokenizer(), seed=2)
    searching.pause()
    searching.send_weights(iter(list(other.named_parameters())))
    searching.resume()
    rows = first
    while rows[-1].model_version == 1:
        rows += taken(searching, 1)
    searching.stop()
    assert rows[-1].model_version == 2
    check_row(other, rows[-1])


def test_a_worker_that_failed_or_is_quiet_is_reported():
    searching = worker()
    searching.check_health(60)
    with pytest.raises(EngineFailed, match="no search has ended"):
        searching.check_health(-1.0)

    def fails(places):
        raise ConfigError("the world has ended")

    searching.collector.collect_at = fails
    searching.start()
    searching.stop()
    with pytest.raises(EngineFailed, match="the searches have failed: the world has ended"):
        searching.check_health(60)


def test_a_waiting_worker_can_be_stopped_and_impossible_settings_are_refused():
    worker().stop()
    full = worker(most=1)
    full.start()
    taken(full, 1)
    full.stop()
    assert threading.active_count() >= 1
    assert full.rollout_buffer.qsize() <= 1
    with pytest.raises(ConfigError, match="needs a critic"):
        worker("gae")
