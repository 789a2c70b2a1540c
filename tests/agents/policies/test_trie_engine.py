"""TrieEngine: the models that it computes and refuses, what it computes once, and whole runs next to transformers."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tests.agents.policies.test_transformers_engine import (
    PROMPTS,
    SEEDS,
    SMALL,
    WIDE,
    check,
    ids_of,
    transformers_engine,
    trie_engine,
)
from tests.agents.short_runs import records, short_run
from tests.agents.tiny import random_qwen2
from tests.conftest import deep
from tsr_gym import ConfigError, Tree
from tsr_gym.agents.episodes.model_player import engine_here
from tsr_gym.agents.policies.choose_engine import WIDEST
from tsr_gym.agents.policies.transformers_engine import TransformersEngine
from tsr_gym.agents.policies.trie_engine import ROWS, TrieEngine
from tsr_gym.agents.runs.trainer import start_run

SIZES = SMALL | WIDE
LLAMA_3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def llama(**settings):
    torch.manual_seed(3)
    return LlamaForCausalLM(LlamaConfig(**(SIZES | settings))).eval()


def qwen2(**settings):
    torch.manual_seed(3)
    return Qwen2ForCausalLM(Qwen2Config(**(SIZES | settings))).eval()


def rope(kind, **settings):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **settings}}


SERVED = {
    "llama with grouped heads": llama,
    "llama with one head for all, tied": lambda: llama(num_key_value_heads=1, tie_word_embeddings=True),
    "heads wider than the model": lambda: llama(head_dim=16),
    "one layer": lambda: llama(num_hidden_layers=1),
    "linear rope": lambda: llama(**rope("linear", factor=4.0)),
    "rope of llama 3": lambda: llama(**rope("llama3", **LLAMA_3)),
    "yarn": lambda: qwen2(**rope("yarn", factor=3.0, original_max_position_embeddings=32)),
    "qwen2 with as many heads": lambda: qwen2(num_key_value_heads=4),
}


@pytest.mark.parametrize("make", SERVED.values(), ids=SERVED)
def test_models_of_two_architectures_are_sampled_as_they_compute_themselves(make):
    model = make()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(-0.5, 0.5)
    answers = check(engine := trie_engine(model), PROMPTS, SEEDS)
    grown = [(*prompt, *row[0].token_ids, 40) for prompt, row in zip(PROMPTS, answers, strict=True)]
    check(engine, grown, SEEDS)


REFUSED = {
    "architecture": (lambda: GPT2LMHeadModel(GPT2Config(vocab_size=80, n_embd=32, n_layer=1, n_head=4)), "gpt2"),
    "precision": (lambda: llama().bfloat16(), "bfloat16"),
    "sliding window": (lambda: qwen2(use_sliding_window=True, max_window_layers=0, sliding_window=8), "sliding"),
    "rope that depends on the length": (lambda: llama(**rope("dynamic", factor=2.0)), "dynamic"),
    "biases": (lambda: llama(attention_bias=True), "biases"),
    "activation": (lambda: llama(hidden_act="gelu"), "gelu"),
}


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_model_that_it_cannot_compute_is_refused_with_the_reason_and_left_to_transformers(make, reason):
    model = make()
    with pytest.raises(ConfigError, match=reason):
        engine_here("trie", model, stop_ids=[5])
    assert isinstance(engine_here("auto", model, stop_ids=[5]), TransformersEngine)


def test_auto_takes_the_trie_up_to_the_width_where_it_is_faster():
    assert isinstance(engine_here("auto", llama(), stop_ids=[5]), TrieEngine)
    assert isinstance(engine_here("transformers", llama(), stop_ids=[5]), TransformersEngine)
    wide = llama(hidden_size=WIDEST + 32)
    assert isinstance(engine_here("auto", wide, stop_ids=[5]), TransformersEngine)
    assert isinstance(engine_here("trie", wide, stop_ids=[5]), TrieEngine)
    with pytest.raises(ConfigError, match="bfloat16"):
        engine_here("trie", llama(), stop_ids=[5], autocast=torch.bfloat16)


def test_low_rank_matrices_are_refused():
    peft = pytest.importorskip("peft")
    model = peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["q_proj"]), llama())
    with pytest.raises(ConfigError, match="lora_A"):
        engine_here("trie", model, stop_ids=[5])


@pytest.fixture(scope="module")
def model(tokenizer):
    return random_qwen2(tokenizer, context=96)


def computed(engine, monkeypatch):
    """Return a list that grows by the number of nodes of each forward pass."""
    counts, compute = [], engine._forward._compute

    def counted(kept, wanted, read):
        counts.append(len(wanted.nodes))
        return compute(kept, wanted, read)

    monkeypatch.setattr(engine._forward, "_compute", counted)
    return counts


def test_equal_beginnings_of_prompts_and_answers_are_computed_once(model, monkeypatch):
    engine = trie_engine(model, max_tokens=3)
    counts = computed(engine, monkeypatch)
    # The second prompt is the beginning of the first, the third shares two tokens with it: 5 + 0 + 1 nodes.
    prompts = [(7, 8, 9, 10, 11), (7, 8, 9), (7, 8, 30)]
    answers = engine.generate(prompts, seeds=[[4, 4, 4], [5, 5], [6]])
    again = [[completion.num_cached for completion in row] for row in answers]
    assert again == [[0, 5, 5], [2, 3], [2]]
    pairs = [(prompt, row[0].token_ids) for prompt, row in zip(prompts, answers, strict=True)]
    beginnings = [{(prompt, ids[:length]) for prompt, ids in pairs if len(ids) >= length} for length in (1, 2)]
    assert counts == [6, *map(len, beginnings)]
    assert all(len({completion.token_ids for completion in row}) == 1 for row in answers)


def test_what_an_earlier_call_left_is_computed_again_only_where_logits_are_wanted(model, monkeypatch):
    engine = trie_engine(model, max_tokens=1)
    counts = computed(engine, monkeypatch)
    for _ in range(2):
        engine.generate([PROMPTS[1], PROMPTS[0]], seeds=[[3], [5]])
    assert counts == [10, 2]
    # What is kept stays within its memory.
    engine = trie_engine(model, cache_gib=1e-9)
    first = engine.generate([PROMPTS[1]], seeds=[[3]])[0][0]
    longer = (*PROMPTS[1], *first.token_ids, 40)
    assert engine.generate([longer], seeds=[[3]])[0][0].num_cached == 0


def test_a_call_that_outgrows_the_memory_of_the_cache_does_not_end_its_use(model):
    room = trie_engine(model)._kept.num_bytes
    engine = trie_engine(model, max_tokens=1, cache_gib=1.5 * room / 2**30)
    many = np.random.default_rng(0).integers(6, 500, (50, 40)).tolist()
    engine.generate(many, seeds=[[0]] * len(many))
    cached = [engine.generate([PROMPTS[1]], seeds=[[3]])[0][0].num_cached for _ in range(2)]
    assert cached == [0, len(PROMPTS[1]) - 1]
    assert engine._kept.num_bytes == room


def test_prompts_of_more_nodes_than_are_computed_at_once_and_a_trie_that_outgrows_its_room(model):
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(6, 500, 40).tolist()) for _ in range(50)]
    assert sum(map(len, prompts)) > 2 * ROWS
    seeds = [[number, 100 + number] for number in range(50)]
    trie, other = trie_engine(model), transformers_engine(model)
    for _ in range(2):
        assert ids_of(trie.generate(prompts, seeds=seeds)) == ids_of(other.generate(prompts, seeds=seeds))
        prompts = [(*prompt, *range(number, number + 9)) for number, prompt in enumerate(prompts)]


def test_an_abort_ends_what_is_being_written(model):
    engine = trie_engine(model, stop_ids=[10_000], max_tokens=80)
    draw, began = engine._weigh, threading.Event()

    def weigh(logits):
        began.set()
        engine.abort()
        return draw(logits)

    engine._weigh = weigh
    (row,) = engine.generate([PROMPTS[0]], seeds=[[1, 2]])
    assert began.is_set()
    assert [(len(completion.token_ids), completion.finish_reason) for completion in row] == [(1, "abort")] * 2


def test_negative_and_large_seeds_draw_the_numbers_of_transformers(model):
    seeds = [[-1, -(2**63), 2**63 - 1, 0]]
    answers = [make(model).generate([PROMPTS[0]], seeds=seeds) for make in (trie_engine, transformers_engine)]
    assert ids_of(answers[0]) == ids_of(answers[1])


@pytest.mark.parametrize("env", ["sokoban", *map(deep, ["webshop", "frozen_lake", "retrieval_qa"])])
def test_a_run_learns_from_the_same_tokens_by_either_engine(env, chat_model, tmp_path):
    runs = []
    for engine in ("transformers", "auto"):
        sections = {"model": {"engine": engine, "max_tokens": 5}, "run": {"updates": 2, "eval_instances": 1}}
        sections["search"] = {"groups": 1, "trajectories": 2}
        config = replace(short_run(tmp_path / engine, chat_model, **sections), env=env)
        assert start_run(config, chat_model).run()
        trees = [Tree.load(path) for path in sorted((config.folder / "trees").rglob("*.jsonl.gz"))]
        tokens = [node.candidate.token_ids for tree in trees for node in tree.nodes]
        lines = records(config.folder) + records(config.folder, "evaluations")
        counts = [{name: value for name, value in line.items() if isinstance(value, int)} for line in lines]
        runs.append((tokens, [line | {"prompt_tokens_saved": None} for line in counts]))
    assert runs[0] == runs[1]
    assert sum(map(len, runs[0][0])) > 20
