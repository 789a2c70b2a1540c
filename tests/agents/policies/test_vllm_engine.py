"""VllmEngine over a scripted host, and the facts of a served model's folder; no vLLM needed."""

import json
from importlib.util import find_spec

import pytest
import torch

from tests.agents.tiny import random_qwen2
from tsr_gym import CheckpointError, ConfigError, EngineFailed, MissingExtra, PromptTooLong
from tsr_gym.agents.policies.engine import Capabilities, Completion
from tsr_gym.agents.policies.vllm_engine import VllmEngine, reason_of, room_for, served_model


class Written:
    """A host whose answers name prompt and seed."""

    capabilities = Capabilities()
    weight_version = 3
    context, vocabulary = 10, 100

    def __init__(self):
        self.asked = []

    def sample(self, asked, settings):
        self.asked.append((asked, settings))
        return [Completion((one.prompt[-1], one.seed), (-1.0, -2.0), "length", 0, 3) for one in asked]


def engine_of(host, **settings):
    return VllmEngine(host, **{"stop_ids": (7,), "max_tokens": 4, **settings})


def test_prompts_are_asked_in_the_order_of_their_beginnings_and_answered_in_their_own():
    host = Written()
    prompts, seeds = [(5, 6, 9), (1, 2), (5, 6), (1,)], [(1, 2), (3,), (), (4, 5)]
    answers = engine_of(host).generate(prompts, seeds=seeds)
    ((asked, _),) = host.asked
    assert [one.prompt for one in asked] == [(1,), (1,), (1, 2), (5, 6, 9), (5, 6, 9)]
    assert [[one.token_ids for one in row] for row in answers] == [[(9, 1), (9, 2)], [(2, 3)], [], [(1, 4), (1, 5)]]


def test_the_whole_distribution_is_asked_for_whatever_the_model_says_of_itself():
    host = Written()
    engine_of(host, temperature=0.5, stop_ids=(7, 100)).generate([(1,)], seeds=[[1]])
    settings = host.asked[0][1]
    assert settings["temperature"] == 0.5
    assert (settings["top_p"], settings["top_k"], settings["min_p"], settings["repetition_penalty"]) == (1, 0, 0, 1)
    assert settings["ignore_eos"]
    # vLLM refuses a token that the model does not have.
    assert settings["stop_token_ids"] == [7]


def test_an_answer_has_the_room_that_limit_and_context_leave():
    host = Written()
    engine_of(host).generate([(1,), (1,) * 8], seeds=[[1], [1]], max_tokens=3)
    engine_of(host).generate([(1,)], seeds=[[1]], max_tokens=99)
    assert [[one.max_tokens for one in asked] for asked, _ in host.asked] == [[3, 2], [4]]
    for prompt in ((), (1,) * 10):
        with pytest.raises(PromptTooLong, match="wanted a prompt of 1 to 9 tokens"):
            engine_of(host).generate([prompt], seeds=[[1]])
    with pytest.raises(ConfigError, match="max_tokens as a whole number >= 1"):
        engine_of(host).generate([(1,)], seeds=[[1]], max_tokens=0)


def test_nothing_is_asked_for_nothing_and_an_answer_that_ended_by_an_error_is_none():
    host = Written()
    assert engine_of(host).generate([(1,), (2,)], seeds=[(), ()]) == [[], []]
    assert host.asked == []
    (((_, logprobs, *_),),) = engine_of(Written(), temperature=0.0).generate([(1,)], seeds=[[1]])
    assert logprobs == (0.0, 0.0)
    with pytest.raises(EngineFailed, match="for the reason 'error'"):
        reason_of("error")


@pytest.mark.parametrize(
    "settings", [{"temperature": 0.001}, {"temperature": -1.0}, {"max_tokens": 0}, {"stop_ids": ()}]
)
def test_settings_that_vllm_would_change_in_silence_are_refused(settings):
    with pytest.raises(ConfigError, match="got"):
        engine_of(Written(), **settings)


def test_an_adapter_has_room_where_vllm_keeps_room_for_as_much_or_more():
    assert [room_for(rank) for rank in (1, 2, 8, 9, 300, 512)] == [1, 8, 8, 16, 320, 512]
    for rank in (0, 513):
        with pytest.raises(ConfigError, match=f"rank 1 to 512, got {rank}"):
            room_for(rank)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_message_says_how_to_install_it(tmp_path):
    from tsr_gym.agents.policies.vllm_engine import VllmModel

    with pytest.raises(MissingExtra, match=r"pip install 'tsr-gym\[vllm\]'"):
        VllmModel(tmp_path)


@pytest.fixture
def folder(tokenizer, tmp_path):
    def made(**settings):
        model = random_qwen2(tokenizer, context=96, **settings)
        model.save_pretrained(tmp_path)
        return model, served_model(tmp_path)

    return made


@pytest.mark.parametrize("tie", [True, False])
def test_a_folder_tells_sizes_and_all_parameters(folder, tie):
    model, found = folder(tie=tie)
    assert (found.context, found.vocabulary, found.head_width, found.tied) == (96, len(model.lm_head.weight), 8, tie)
    assert found.shapes == {name: tuple(value.shape) for name, value in model.state_dict().items()}


def test_a_tied_head_that_an_update_leaves_out_is_the_embedding(folder):
    model, found = folder(tie=True)
    whole = found.whole_weights(model.named_parameters())
    assert torch.equal(whole["lm_head.weight"], model.model.embed_tokens.weight)
    assert not whole["lm_head.weight"].requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("model.norm.weight"), "all 27 parameters, and 'model.norm.weight' is missing"),
        (lambda weights: weights.pop("lm_head.weight"), "'lm_head.weight' is missing"),
        (lambda weights: weights.update({"model.norm.weight": torch.ones(3)}), r"of shape \[32\], got \[3\]"),
        (lambda weights: weights.update(other=torch.ones(3)), "no parameter 'other'"),
    ],
    ids=["missing", "head of its own missing", "other shape", "unknown"],
)
def test_an_update_that_is_not_whole_is_refused(folder, change, message):
    model, found = folder(tie=False)
    weights = dict(model.state_dict())
    change(weights)
    with pytest.raises(ConfigError, match=message):
        found.whole_weights(weights.items())


def test_heads_that_vllm_does_not_know_on_a_cpu_are_refused(folder):
    with pytest.raises(ConfigError, match=r"heads are 8 wide.*, or a base model with --hidden 128"):
        folder(tie=True)[1].check_heads()
    folder(tie=True, hidden=128)[1].check_heads()


def test_a_folder_without_a_model_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="wanted a Hugging Face model in safetensors"):
        served_model(tmp_path)
    sizes = {"hidden_size": 8, "num_attention_heads": 1, "max_position_embeddings": 9, "vocab_size": 4}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    with pytest.raises(CheckpointError, match="found no weights"):
        served_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="Safetensor"):
        served_model(tmp_path)
