"""The contract of engines: its helper functions, and the engines that keep it."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.agents.tiny import ScriptedEngine, random_qwen2
from tsr_gym import CheckFailed, ConfigError
from tsr_gym.agents.policies.engine import ENGINES, Completion, Engine, EngineEntry, find_engine, start_host
from tsr_gym.agents.policies.transformers_engine import TransformersEngine
from tsr_gym.agents.policies.trie_engine import TrieEngine
from tsr_gym.optional import load
from tsr_gym.testing.check_engine import HELD


def test_a_script_answers_every_seed_in_order_and_is_an_engine():
    engine = ScriptedEngine(lambda prompt, seed: (*prompt, seed))
    first, second = engine.generate([(1, 2), (3,)], seeds=[[7, 8], [9]])
    assert first == [Completion((1, 2, seed), (0.0,) * 3, "stop") for seed in (7, 8)]
    assert second == [Completion((3, 9), (0.0,) * 2, "stop")]
    engine = ScriptedEngine(lambda prompt, seed: ())
    engine.generate([(1,)], seeds=[[1, 2, 3]])
    engine.load_weights([("weight", 1)])
    engine.generate([], seeds=[])
    assert engine.calls == 2
    names = {name for name, value in vars(Engine).items() if callable(value) and not name.startswith("_")}
    assert names == {"generate", "load_weights", "abort"}
    assert all(names <= set(dir(kind)) for kind in (ScriptedEngine, TransformersEngine, TrieEngine))


# Many, so that some answers end with one.
STOPS = range(5, 30)
TEMPERATURE = 0.8


def learners_logprobs(model, prompt, answer):
    """Return the log-probabilities of an answer by one full forward pass in float64, without any cache."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *answer]]), use_cache=False).logits[0].double()
    rows = (logits / TEMPERATURE).log_softmax(dim=-1)[len(prompt) - 1 : -1]
    return rows.gather(1, torch.tensor(answer)[:, None])[:, 0].tolist()


def soft_model(tokenizer, seed):
    """Return a model whose logits are small enough for float32 to agree with itself to 1e-6."""
    model = random_qwen2(tokenizer, context=256, seed=seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    return model


@pytest.fixture
def learner(tokenizer):
    return soft_model(tokenizer, 0)


def engine_of(model, kind=TransformersEngine, **settings):
    settings = {"stop_ids": STOPS, "max_tokens": 12, "temperature": TEMPERATURE, **settings}
    return kind(copy.deepcopy(model), **settings)


def new_weights(model, tokenizer):
    model.load_state_dict(soft_model(tokenizer, 9).state_dict())
    return model.state_dict().items()


@pytest.mark.parametrize("kind", [TransformersEngine, TrieEngine])
@pytest.mark.parametrize("settings", [{}, {"reuse": False, "max_batch": 100}], ids=str)
def test_engines_of_this_process_keep_the_whole_contract(check_engine, learner, tokenizer, kind, settings):
    update = partial(new_weights, learner, tokenizer)
    reference = partial(learners_logprobs, learner)
    found = check_engine(engine_of(learner, kind, **settings), reference=reference, update=update, stop_ids=STOPS)
    assert found.pop("unsupported") == "the engine offers everything"
    assert set(found.values()) == {HELD}


@pytest.mark.parametrize("kind", [TransformersEngine, TrieEngine])
def test_a_model_that_is_trained_in_place_needs_no_weights(check_engine, learner, kind):
    engine = kind(learner, stop_ids=STOPS, max_tokens=12, temperature=TEMPERATURE)

    def update():
        with torch.no_grad():
            for parameter in learner.parameters():
                parameter.mul_(0.9)
        return ()

    found = check_engine(engine, reference=partial(learners_logprobs, learner), update=update, stop_ids=STOPS)
    assert found["weight update"] == HELD


def test_an_engine_that_forgets_to_forget_is_found(check_engine, learner, tokenizer):
    engine = engine_of(learner)
    engine._cache.clear = lambda: None
    update = partial(new_weights, learner, tokenizer)
    with pytest.raises(CheckFailed, match="weight update"):
        check_engine(engine, reference=partial(learners_logprobs, learner), update=update)
    engine = engine_of(learner, autocast=torch.bfloat16)
    found = check_engine(engine, reference=partial(learners_logprobs, learner), tolerance=0.5, stop_ids=STOPS)
    assert found["company"] == "the engine does not promise it"
    assert found["seeds"] == HELD


class Held:
    """A host of a user's own."""

    def __init__(self, folder, *, dtype, number=1):
        self.made_with = (folder, dtype, number)


def test_the_host_of_every_engine_exists():
    assert all(callable(load(entry.host)) for entry in ENGINES.values() if entry.host)


def test_an_engine_of_ones_own_is_chosen_by_its_name_and_gets_the_settings_that_it_has_arguments_for():
    text = "tests.agents.policies.test_engine:Held(number=3)"
    assert find_engine(text) == EngineEntry(text, takes_adapters=True, in_workers=True)
    host = start_host(text, Path("model"), url=None, dtype="float32", lora_rank=2)
    assert host.made_with == (Path("model"), "float32", 3)
    assert start_host("transformers", Path("model")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [("vlm", "did you mean vllm"), ("tests.agents.policies.test_engine:Missing", "Missing")],
)
def test_an_engine_that_does_not_exist_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        start_host(text, Path("model"), dtype="float32")
