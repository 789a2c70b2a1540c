"""The rollout worker for TRL's asynchronous trainer without TRL: exact rows, weights between rounds, faults told."""

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
from tsr_gym.agents.models.card import ModelCard
from tsr_gym.agents.models.language_model import LanguageModel
from tsr_gym.agents.models.logprobs import token_logprobs
from tsr_gym.agents.models.settings import ModelConfig

MODEL = ModelConfig(max_tokens=5, prompt="plain", temperature=0.8)
LEAVES = SearchConfig(search="beam(width=2, branching=2)", trajectories=2, groups=1, learn_from="leaves")


def worker(estimator="tree_backup", search=LEAVES, seed=0, **more):
    tokenizer = chatml_tokenizer()
    policy = LanguageModel(random_qwen2(tokenizer, seed=seed), tokenizer, ModelCard())
    return TsrRolloutWorker(policy, "tests/Counting-v0", estimator=estimator, search=search, model=MODEL, **more)


def taken(one, count):
    """Return some rows of a worker that searches."""
    return [one.rollout_buffer.get(timeout=60) for _ in range(count)]


def row_of(mask, logprobs):
    """Return a row by hand."""
    ids = tuple(range(5, 5 + len(mask)))
    return Row(3, 0, ids, mask, logprobs, (1,), (5,), (0,), (1,), (2.0,), (0.0,), 2.0, 0.0, True, True, "beam")


def test_a_row_with_several_advantages_is_a_row_for_each_with_a_mask_of_its_own():
    row = row_of((0, 1, 1, 0, 1), (0.0, -0.1, -0.2, 0.0, -0.3))
    found = list(async_rows(TrainedRow(row, [0.0] * 5, [0.0, 0.5, 0.5, 0.0, -1.0]), version=4, group=9))
    assert [(one.advantage, one.completion_mask.tolist()) for one in found] == [
        (-1.0, [0, 0, 0, 0, 1]),
        (0.5, [0, 1, 1, 0, 0]),
    ]
    assert all(one.input_ids.tolist() == [5, 6, 7, 8, 9] for one in found)
    assert all((one.model_version, one.group_id) == (4, 9) for one in found)
    assert found[0].metrics == {"reward": 2.0, "success": 1.0, "turns": 1.0}
    # A sampled token with advantage 0 is in the mean that a loss divides by.
    (zero,) = async_rows(TrainedRow(row, [0.0] * 5, [0.0] * 5), version=0, group=0)
    assert (zero.advantage, zero.completion_mask.tolist()) == (0.0, [0, 1, 1, 0, 1])


def test_rows_hold_what_the_model_sampled():
    one = worker()
    one.start()
    rows = taken(one, 12)
    one.stop()
    # Trees, so advantages of turns.
    assert len({row.advantage for row in rows}) > 3
    for row in rows:
        ids, sampled = torch.tensor(row.input_ids)[None], torch.tensor(row.completion_mask)[None] > 0
        with torch.no_grad():
            model = one.collector.policy.engine.model
            wanted, _ = token_logprobs(model, ids, torch.ones_like(sampled), sampled, temperature=0.8)
        assert torch.allclose(wanted[sampled], torch.tensor(row.old_log_probs)[sampled[0]], atol=1e-4)


def test_weights_change_between_rounds_and_rows_tell_under_which_they_were_sampled():
    one = worker(most=4)
    one.pause()
    one.send_weights(iter(list(random_qwen2(chatml_tokenizer(), seed=1).named_parameters())))
    one.start()
    time.sleep(0.1)
    assert one.rollout_buffer.empty()
    one.resume()
    one.update_model_version(1)
    first = taken(one, 2)
    assert {row.model_version for row in first} == {1}
    other = random_qwen2(chatml_tokenizer(), seed=2)
    one.pause()
    one.send_weights(iter(list(other.named_parameters())))
    one.resume()
    rows = first
    while rows[-1].model_version == 1:
        rows += taken(one, 1)
    one.stop()
    assert rows[-1].model_version == 2
    ids, sampled = torch.tensor(rows[-1].input_ids)[None], torch.tensor(rows[-1].completion_mask)[None] > 0
    with torch.no_grad():
        wanted, _ = token_logprobs(other, ids, torch.ones_like(sampled), sampled, temperature=0.8)
    assert torch.allclose(wanted[sampled], torch.tensor(rows[-1].old_log_probs)[sampled[0]], atol=1e-4)


def test_a_worker_that_failed_or_is_quiet_is_told():
    one = worker()
    one.check_health(60)
    with pytest.raises(EngineFailed, match="no search has ended"):
        one.check_health(-1.0)

    def fails(places):
        raise ConfigError("the world has ended")

    one.collector.collect_at = fails
    one.start()
    one.stop()
    with pytest.raises(EngineFailed, match="the searches have failed: the world has ended"):
        one.check_health(60)


def test_a_worker_that_never_began_or_waits_for_room_can_be_stopped():
    worker().stop()
    full = worker(most=1)
    full.start()
    taken(full, 1)
    full.stop()
    assert threading.active_count() >= 1
    assert full.rollout_buffer.qsize() <= 1


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="needs a critic"):
        worker("gae")
