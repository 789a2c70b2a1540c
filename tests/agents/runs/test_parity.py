"""Parity: an engine that samples from other weights stops the run, with both numbers and a checkpoint."""

import copy
import math

import pytest
import torch

from tests.agents.short_runs import short_run
from tests.agents.tiny import random_qwen2
from tsr_gym import EngineFailed
from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.policies.transformers_engine import TransformersEngine
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.agents.runs.parity import check_versions, fixed_prompts, probe
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.trainer import start_run


@pytest.fixture(scope="module")
def model(tokenizer):
    return random_qwen2(tokenizer, context=96)


def engine_of(model, temperature=0.8):
    return TransformersEngine(model, stop_ids=[5], max_tokens=50, temperature=temperature)


def test_both_numbers_are_those_of_one_token_of_a_fixed_prompt(model):
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.lm_head.weight.mul_(1.1)
    parity = probe(engine_of(other), model, temperature=0.8)
    prompts = fixed_prompts(model.config.vocab_size, 92)
    answers = [row[0] for row in engine_of(other).generate(prompts, seeds=[[20]] * 3, max_tokens=4)]
    pairs = []
    for prompt, answer in zip(prompts, answers, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *answer.token_ids]])).logits[0, len(prompt) - 1 : -1] / 0.8
        own = [float(row.log_softmax(0)[token]) for row, token in zip(logits, answer.token_ids, strict=True)]
        pairs += zip(answer.logprobs, own, strict=True)
    worst = max(pairs, key=lambda pair: abs(pair[0] - pair[1]))
    assert (parity.engine, parity.learner) == pytest.approx(worst, abs=1e-4)
    assert parity.difference > 0.01


def test_prompts_are_longer_than_a_block_of_vllm_if_the_context_has_room():
    assert [len(prompt) for prompt in fixed_prompts(100, 1000)] == [5, 16, 72]
    assert [len(prompt) for prompt in fixed_prompts(100, 20)] == [5, 16, 20]


def test_a_stale_cache_is_noticed(model):
    own = copy.deepcopy(model)
    engine = engine_of(own)
    assert probe(engine, own, temperature=0.8).difference < 1e-4
    assert probe(engine, own, temperature=0.8).engine < 0
    for parameter in own.parameters():
        # The engine itself notices changes that PyTorch counts; these are none.
        parameter.data.mul_(0.95)
    assert probe(engine, own, temperature=0.8).difference > 0.001
    engine.load_weights(())
    assert probe(engine, own, temperature=0.8).difference < 1e-4


def test_nan_counts_as_the_largest_difference(model):
    class Broken:
        def generate(self, prompts, *, seeds, max_tokens):
            answers = engine_of(model).generate(prompts, seeds=seeds, max_tokens=max_tokens)
            answers[0][0] = answers[0][0]._replace(logprobs=(math.nan,) * len(answers[0][0].token_ids))
            return answers

    assert math.isnan(probe(Broken(), model, temperature=0.8).engine)


def group_of(*versions):
    turns = tuple(Turn((1,), (2,), (-0.1,), 0.0, True, 1, weight_version=version) for version in versions)
    return Group(7, (Trajectory(turns, False, 0.0, "naive"),))


def test_trajectories_of_other_versions_are_refused():
    check_versions([group_of(3, 3), group_of(None), group_of()], 3)
    with pytest.raises(EngineFailed, match=r"instance 7 .*version 2.*version 3"):
        check_versions([group_of(3), group_of(3, 2)], 3)


class Stale:
    """An engine that misses the weights of its second update."""

    def __init__(self, engine):
        self.engine = engine
        self.max_tokens = engine.max_tokens
        self.updates = 0

    def load_weights(self, weights, *, version=None):
        self.updates += 1
        if self.updates == 2:
            kept = copy.deepcopy(self.engine.model)
            with torch.no_grad():
                kept.lm_head.weight.mul_(1.5)
            self.engine.model = kept
        self.engine.load_weights(weights, version=version)

    def generate(self, prompts, **settings):
        return self.engine.generate(prompts, **settings)


@pytest.mark.parametrize("tolerance", [None, 0.0, 100.0])
def test_a_run_with_a_stale_engine_stops_with_both_numbers_and_a_checkpoint(base_model, tmp_path, tolerance):
    run = {"parity_tolerance": tolerance, "updates": 3, "eval_every": 0, "checkpoint_every": 9}
    trainer = start_run(short_run(tmp_path / "run", base_model, run=run), base_model)
    trainer.parts.chat.engine = Stale(trainer.parts.chat.engine)
    if tolerance is not None:
        assert trainer.run()
        return
    facts = r"log-probability -[\d.]+ and the learner -[\d.]+: wanted .* at most 0\.001"
    with pytest.raises(EngineFailed, match=facts):
        trainer.run()
    assert trainer.progress.update == 1
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["000000", "000001"]


def test_every_sampled_turn_has_the_version_of_its_weights(base_model, tmp_path):
    trainer = start_run(short_run(tmp_path / "run", base_model, run={"updates": 2, "eval_every": 0}), base_model)
    seen = []
    collect = trainer.parts.collector.collect

    def watched(*args, **settings):
        collected = collect(*args, **settings)
        seen.append({path.weight_versions for group in collected.groups for path in group.trajectories})
        return collected

    trainer.parts.collector.collect = watched
    assert trainer.run()
    assert seen == [{frozenset({0})}, {frozenset({1})}]


def test_the_logs_count_every_token_that_the_engine_samples(base_model, tmp_path):
    trainer = start_run(short_run(tmp_path / "run", base_model, run={"updates": 2, "eval_every": 0}), base_model)
    chat = trainer.parts.chat
    sampled, generate = [], chat.engine.generate

    def watched(*args, **settings):
        rows = generate(*args, **settings)
        sampled.append(sum(len(answer.token_ids) for row in rows for answer in row))
        return rows

    chat.engine.generate = watched
    assert trainer.run()
    lines = JsonLines(tmp_path / "run/metrics.jsonl").read()
    assert all(0 < line["parity_tokens"] <= 12 for line in lines)
    assert sum(sampled) == sum(line["sampled_tokens"] + line["parity_tokens"] for line in lines)
    # The budget, which comparisons hold equal, has the tokens of the method alone.
    assert lines[-1]["sampled_tokens_total"] == sum(line["sampled_tokens"] for line in lines) == chat.num_tokens
    evaluations = JsonLines(tmp_path / "run/evaluations.jsonl").read()
    assert [line["step"] for line in evaluations if line["parity_tokens"]] == [0, 2]
