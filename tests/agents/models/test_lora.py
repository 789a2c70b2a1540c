"""LoRA: what trains, what is merged, saved and restored, against PEFT and by hand."""

import copy
import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from tests.agents.learning.layouts.rows import FAMILIES, batch_of, random_groups, random_model, row_by_row
from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tsr_gym import CheckpointError, ConfigError, MissingExtra, TrainingDiverged
from tsr_gym.agents.learning.layouts import attending, lay_out
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.learning.settings import LearnConfig, Objective
from tsr_gym.agents.models.language_model import (
    LanguageModel,
    ModelCard,
    frozen_reference,
    load_policy,
    restore_adapter,
    save_policy,
)
from tsr_gym.agents.models.logprobs import read_head
from tsr_gym.agents.models.lora import (
    adapted_layers,
    add_lora,
    base_weights,
    merged_weights,
    save_adapter,
    without_lora,
)
from tsr_gym.agents.models.settings import LoraSettings
from tsr_gym.agents.models.sharding import recompute_activations
from tsr_gym.agents.policies.transformers_engine import TransformersEngine

CPU = torch.device("cpu")
SMALL = LoraSettings(rank=3, alpha=5.0)
LAYOUTS = ("padded", "packed", "shared")
CLOSE = 1e-5


def learned(model, settings=SMALL, *, std=0.3):
    """Give a model LoRA that has learned something, and return it."""
    add_lora(model, settings)
    torch.manual_seed(1)
    for layer in adapted_layers(model).values():
        nn.init.normal_(layer.lora_B["default"].weight, std=std)
    return model


def merged_by_hand(model, plain, settings=SMALL):
    """Return a model without LoRA whose weights are ``W + alpha / rank B A``."""
    twin = copy.deepcopy(plain)
    parts = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            layer = name.removesuffix(".weight")
            if f"{layer}.lora_A.default.weight" in parts:
                down, up = (parts[f"{layer}.lora_{part}.default.weight"] for part in "AB")
                parameter += settings.alpha / settings.rank * up @ down
    return twin


def off_by(found, wanted):
    return float((found - wanted).detach().norm() / wanted.detach().norm().clamp(min=1e-30))


@pytest.fixture(scope="module")
def both():
    """A model with LoRA, and the one that it was made of."""
    plain = random_model("qwen2")
    return learned(copy.deepcopy(plain)), plain


@pytest.fixture(scope="module", params=FAMILIES)
def families(request):
    """The same, of several families."""
    plain = random_model(request.param)
    return learned(copy.deepcopy(plain)), plain


@pytest.fixture
def folder(chat_model):
    return chat_model


def says(model, seed=0):
    """Return a model's logits for some tokens."""
    ids = torch.randint(1, 40, (2, 9), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits


def learner_of(model, **settings):
    return Learner(model, None, LearnConfig(algorithm="grpo", lr=0.01, **settings))


def batch_for(model, layout="padded", seed=0):
    return replace(batch_of(random_groups(seed, trees=1, turns=2), model), layout=layout)


def test_at_first_a_model_says_what_it_said_and_only_the_matrices_train():
    plain = random_model("llama")
    model = copy.deepcopy(plain)
    add_lora(model, LoraSettings(rank=3))
    assert type(model) is type(plain)
    assert torch.equal(says(model), says(plain))
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)
    # Per layer q and o are 32 by 32, k and v 16 by 32, and three matrices 32 by 48; a rank costs a row and a column.
    assert sum(map(torch.numel, trained.values())) == 2 * 3 * (2 * 64 + 2 * 48 + 3 * 80)


def test_only_named_layers_are_adapted():
    model = random_model("qwen2")
    add_lora(model, LoraSettings(targets=("q_proj", "layers.1.mlp.up_proj")))
    names = ("0.self_attn.q_proj", "1.self_attn.q_proj", "1.mlp.up_proj")
    assert set(adapted_layers(model)) == {f"model.layers.{name}" for name in names}


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (("q_proj", "nose"), "Qwen2ForCausalLM has no layer whose name ends in 'nose'"),
        (("_proj",), "has no layer whose name ends in '_proj'"),
        (("lm_head",), "'lm_head' is neither"),
        (("q_proj", "embed_tokens"), "'embed_tokens' is neither"),
        (("self_attn",), "Qwen2ForCausalLM cannot have LoRA at"),
    ],
)
def test_targets_that_cannot_be_are_named(targets, words):
    with pytest.raises(ConfigError, match=words):
        add_lora(random_model("qwen2"), LoraSettings(targets=targets))


def test_the_seed_decides_how_the_matrices_begin_and_torch_draws_nothing():
    models = [random_model("llama") for _ in range(3)]
    state = torch.get_rng_state()
    for model, seed in zip(models, (1, 1, 2), strict=True):
        torch.rand(seed)
        before = torch.get_rng_state()
        add_lora(model, LoraSettings(seed=seed))
        assert torch.equal(torch.get_rng_state(), before)
    torch.set_rng_state(state)
    name = "model.layers.1.mlp.down_proj.lora_A.default.weight"
    one, same, other = (model.state_dict()[name] for model in models)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_without_peft_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"'peft', which is not installed: pip install 'tsr-gym\[lora\]'"):
        add_lora(random_model("llama"), LoraSettings())


@pytest.mark.parametrize(("parts", "recompute"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_log_probabilities_and_gradients_are_those_of_the_merged_model(families, layout, parts, recompute):
    model, plain = families
    twin = merged_by_hand(model, plain).requires_grad_(True)
    batch = batch_for(plain)

    def descend(logprobs, entropy):
        draw = torch.Generator().manual_seed(3)
        (torch.randn(logprobs.shape, generator=draw) * logprobs + 0.1 * entropy).sum().backward()

    wanted = row_by_row(twin, batch)
    descend(*wanted)
    model.zero_grad()
    head = read_head(model) if parts else None
    recomputed = recompute_activations(model) if recompute else nullcontext()
    with attending(*([] if layout == "padded" else [model])), recomputed:
        found = lay_out(batch, layout).logprobs(model, head=head)
        descend(*found)
    for one, other in zip(found, wanted, strict=True):
        assert off_by(one, other) < CLOSE
    dense = dict(twin.named_parameters())
    scale = SMALL.alpha / SMALL.rank
    for name, layer in adapted_layers(model).items():
        # By the chain rule: with W + s B A in the place of W, dB = s dW A^T and dA = s B^T dW.
        gradient = dense[f"{name}.weight"].grad
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        assert off_by(up.grad, scale * gradient @ down.T) < 10 * CLOSE
        assert off_by(down.grad, scale * up.T @ gradient) < 10 * CLOSE
    assert all((part.grad is not None) == part.requires_grad for part in model.parameters())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_update_moves_the_matrices_and_nothing_else(both, layout):
    model, plain = copy.deepcopy(both[0]), both[1]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    learner_of(model).update(batch_for(plain, layout))
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name, part in model.named_parameters() if part.requires_grad}
    assert moved == {name for name in before if ".lora_" in name}


def test_merged_weights_have_the_names_and_say_the_words_of_the_live_model(families):
    model, plain = families
    before = {name: value.clone() for name, value in model.state_dict().items()}
    exported = dict(merged_weights(model))
    wanted = merged_by_hand(model, plain).state_dict()
    assert exported.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(exported[name], value, rtol=1e-6, atol=1e-7)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(value.requires_grad for value in exported.values())
    # A model without LoRA exports what it holds.
    own = dict(merged_weights(plain))
    assert {name: value.data_ptr() for name, value in own.items()} == {
        name: value.data_ptr() for name, value in plain.state_dict().items()
    }
    twin = copy.deepcopy(plain)
    twin.load_state_dict(exported)
    batch = batch_for(plain)
    with torch.no_grad():
        live, merged = (lay_out(batch, "padded").logprobs(one)[0] for one in (model, twin))
    torch.testing.assert_close(live, merged, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
def test_layers_that_hold_their_weight_the_other_way_round_are_merged_the_other_way_round():
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "n_embd": 32, "n_layer": 1, "n_head": 4, "initializer_range": 0.2}
    plain = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
    model = learned(copy.deepcopy(plain))
    assert {type(layer.get_base_layer()).__name__ for layer in adapted_layers(model).values()} == {"Conv1D"}
    plain.load_state_dict(dict(merged_weights(model)))
    assert off_by(says(plain), says(model)) < CLOSE


def test_tensors_that_were_gathered_elsewhere_are_written_in_place_of_the_models_own(folder, tmp_path):
    policy, _ = trained(folder)
    whole = {name: value.clone() for name, value in policy.model.state_dict().items()}
    save_policy(policy, tmp_path / "wanted")
    for parameter in policy.model.parameters():
        parameter.data.zero_()
    save_policy(policy, tmp_path / "found", weights=whole)
    for file in ("model.safetensors", "lora/adapter_model.safetensors", "lora/base.safetensors"):
        assert (tmp_path / "found" / file).read_bytes() == (tmp_path / "wanted" / file).read_bytes()


def test_sampling_is_that_of_the_merged_model(tokenizer):
    plain = random_qwen2(tokenizer, context=96)
    model = learned(copy.deepcopy(plain), std=0.05)
    own, other = (TransformersEngine(one, stop_ids=[5], max_tokens=8) for one in (model, plain))
    other.load_weights(merged_weights(model))
    prompts, seeds = [[7, 8, 9], [7, 8, 9, 30, 31], [40]], [[1, 2, 3], [4], [5, 6]]
    own.load_weights(())
    for mine, theirs in zip(own.generate(prompts, seeds=seeds), other.generate(prompts, seeds=seeds), strict=True):
        for one, wanted in zip(mine, theirs, strict=True):
            assert one.token_ids == wanted.token_ids
            assert one.logprobs == pytest.approx(wanted.logprobs, abs=1e-4)


def trained(folder, dtype=torch.float32):
    """Return a policy and a learner that have made two steps."""
    policy = load_policy(folder, device=CPU, lora=SMALL, dtype=dtype)
    learner = learner_of(policy.model)
    for seed in (0, 1):
        learner.update(batch_for(policy.model, "shared", seed))
    return policy, learner


def test_a_saved_policy_is_a_plain_model_to_whoever_loads_it(folder, tmp_path, monkeypatch):
    policy, _ = trained(folder)
    save_policy(policy._replace(card=ModelCard(prompt="compact")), tmp_path / "saved")
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None)
    plain = load_policy(tmp_path / "saved", device=CPU)
    assert plain.card.prompt == "compact"
    names = [name for name, _ in load_policy(folder, device=CPU).model.named_parameters()]
    assert [name for name, _ in plain.model.named_parameters()] == names
    assert off_by(says(plain.model), says(policy.model)) < CLOSE
    assert off_by(says(plain.model), says(load_policy(folder, device=CPU).model)) > 0.01


def test_peft_reads_the_adapter(folder, tmp_path):
    from peft import PeftModel

    policy, _ = trained(folder)
    save_policy(policy, tmp_path / "saved")
    base = load_policy(folder, device=CPU).model
    theirs = PeftModel.from_pretrained(base, tmp_path / "saved" / "lora")
    assert torch.equal(says(theirs), says(policy.model))
    described = json.loads((tmp_path / "saved" / "lora" / "adapter_config.json").read_text())
    assert described["base_model_name_or_path"] == str(folder)
    assert described["target_modules"] == sorted(described["target_modules"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_run_that_goes_on_from_a_folder_repeats_itself_bit_for_bit(folder, tmp_path, dtype):
    policy, learner = trained(folder, dtype)
    save_policy(policy, tmp_path / "saved")
    states = {name: copy.deepcopy(optimizer.state_dict()) for name, optimizer in learner.optimizers.items()}
    # Begun with other random matrices, as by a process that has drawn others.
    again = load_policy(tmp_path / "saved", device=CPU, lora=replace(SMALL, seed=9), dtype=dtype)
    restore_adapter(again.model, tmp_path / "saved")
    assert_same(again.model, policy.model)
    other = learner_of(again.model)
    for name, optimizer in other.optimizers.items():
        optimizer.load_state_dict(states[name])
    batch = batch_for(policy.model, "shared", 7)
    assert learner.update(batch) == other.update(batch)
    assert_same(again.model, policy.model)
    for name, one in (("one", policy), ("other", again)):
        save_policy(one, tmp_path / name)
    for file in ("model.safetensors", "lora/adapter_model.safetensors", "lora/base.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def assert_same(model, wanted):
    assert model.state_dict().keys() == wanted.state_dict().keys()
    assert all(torch.equal(value, wanted.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_policy_without_lora_has_no_adapter_to_restore(folder, tmp_path):
    policy = load_policy(folder, device=CPU)
    save_policy(policy, tmp_path / "saved")
    assert not (tmp_path / "saved" / "lora").exists()
    before = says(policy.model)
    restore_adapter(policy.model, tmp_path / "saved")
    assert torch.equal(says(policy.model), before)


def test_an_adapter_of_another_run_or_none_is_refused(folder, tmp_path):
    policy = load_policy(folder, device=CPU, lora=SMALL)
    with pytest.raises(CheckpointError, match=r"lora: wanted the adapter of a model with LoRA"):
        restore_adapter(policy.model, folder)
    save_policy(policy, tmp_path)
    for settings in (LoraSettings(rank=4), LoraSettings(rank=3, targets=("q_proj",))):
        other = load_policy(folder, device=CPU, lora=settings)
        with pytest.raises(CheckpointError, match="LoRA with another rank or other targets"):
            restore_adapter(other.model, tmp_path)
    file = tmp_path / "lora" / "base.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="wanted the adapter of a model with LoRA"):
        restore_adapter(policy.model, tmp_path)


def test_the_files_hold_the_adapter_and_the_weights_beside_it(folder, tmp_path):
    policy = load_policy(folder, device=CPU, lora=LoraSettings(rank=3, targets=("q_proj",)))
    save_policy(policy, tmp_path)
    matrices = set(load_file(tmp_path / "lora" / "adapter_model.safetensors"))
    names = [f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora" for layer in (0, 1)]
    assert matrices == {f"{name}_{part}.weight" for name in names for part in "AB"}
    base, plain = load_file(tmp_path / "lora" / "base.safetensors"), load_policy(folder, device=CPU).model.state_dict()
    assert set(base) == {f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (0, 1)}
    assert all(torch.equal(value, plain[name]) for name, value in base.items())


def policy_of(model):
    return LanguageModel(model, chatml_tokenizer(), ModelCard())


def test_the_reference_of_a_policy_with_lora_is_what_it_began_as_and_takes_no_memory(both):
    model, plain = copy.deepcopy(both[0]), both[1]
    reference = frozen_reference(policy_of(model))
    assert {id(part) for part in reference.parameters()} == {id(part) for part in model.parameters()}
    learner_of(model).update(batch_for(plain))
    now = says(model)
    assert torch.equal(says(reference), says(plain))
    assert torch.equal(says(model), now)
    trains = {name for name, part in model.named_parameters() if part.requires_grad}
    assert trains == {name for name in model.state_dict() if ".lora_" in name}


def test_a_reference_that_fails_leaves_the_matrices_on(both):
    model = both[0]
    before = says(model)
    with pytest.raises(RuntimeError), without_lora(model):
        raise RuntimeError
    assert torch.equal(says(model), before)


@pytest.mark.parametrize("logits", ["whole", "parts"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kl_term_is_the_same_to_the_reference_and_to_the_model_it_began_as(both, layout, logits):
    steps = []
    for shared in (True, False):
        model = copy.deepcopy(both[0])
        reference = frozen_reference(policy_of(model if shared else both[1]))
        config = LearnConfig(algorithm="grpo", lr=0.01, objective=Objective(kl_weight=0.3), logits=logits)
        learned = Learner(model, None, config, reference=reference).update(batch_for(both[1], layout))
        steps.append((learned, model.state_dict()))
    (metrics, found), (wanted_metrics, wanted) = steps
    assert metrics == pytest.approx(wanted_metrics, rel=1e-5)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_a_base_in_half_the_memory_has_matrices_in_full_precision(folder):
    policy = load_policy(folder, device=CPU, lora=SMALL, dtype=torch.bfloat16)
    kinds = {name: part.dtype for name, part in policy.model.named_parameters()}
    assert {kinds[name] for name in kinds if ".lora_" in name} == {torch.float32}
    assert {kinds[name] for name in kinds if ".lora_" not in name} == {torch.bfloat16}
    # A step of the usual size is not lost.
    before = {name: part.clone() for name, part in policy.model.named_parameters()}
    config = LearnConfig(algorithm="grpo", lr=1e-6)
    Learner(policy.model, None, config, autocast=torch.bfloat16).update(batch_for(policy.model, "shared"))
    moved = {name for name, part in policy.model.named_parameters() if not torch.equal(part, before[name])}
    assert moved == {name for name in kinds if ".lora_B." in name}
    exported = dict(merged_weights(policy.model))
    assert {value.dtype for value in exported.values()} == {torch.bfloat16}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_matrices_that_are_not_finite_end_training_before_the_step(both, value, autocast):
    model = copy.deepcopy(both[0])
    batch = batch_for(both[1])
    name, layer = next(iter(adapted_layers(model).items()))
    with torch.no_grad():
        layer.lora_B["default"].weight[0, 0] = value
    before = {name: part.clone() for name, part in model.state_dict().items()}
    with pytest.raises(TrainingDiverged):
        Learner(model, None, LearnConfig(algorithm="grpo"), autocast=autocast).update(batch)
    for name, part in model.state_dict().items():
        torch.testing.assert_close(part, before[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_bfloat16_an_update_is_nearly_the_same(both, layout, adapted):
    batch = batch_for(both[1], layout)
    gradients = []
    for autocast in (None, torch.bfloat16):
        model = copy.deepcopy(both[0 if adapted else 1])
        learner = Learner(model, None, LearnConfig(algorithm="grpo", lr=0.01), autocast=autocast)
        learner.update(batch)
        gradients.append(torch.cat([part.grad.flatten() for part in model.parameters() if part.requires_grad]))
        assert gradients[-1].dtype == torch.float32
    # Clipped to norm 1 both; bfloat16 has 8 bits, and some tokens clip in the one and not in the other.
    assert off_by(gradients[1], gradients[0]) < 0.3


@pytest.mark.deep
def test_a_compiled_policy_learns_the_same_and_exports_the_same_names(both):
    plain = both[1]
    found = []
    for wrap in (lambda model: model, lambda model: torch.compile(model, backend="aot_eager")):
        model = copy.deepcopy(plain)
        learner_of(wrap(model)).update(batch_for(plain))
        found.append(dict(merged_weights(wrap(model))))
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-4, atol=1e-5)


def test_an_adapter_has_the_matrices_alone_and_the_weights_beside_them_are_those_of_the_model_before(both, tmp_path):
    model, plain = both
    found, wanted = dict(base_weights(model)), plain.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
    model, _ = both
    save_adapter(model, tmp_path / "adapter")
    written = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= written
    assert "base.safetensors" not in written
    saved = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert len(saved) == 2 * len(adapted_layers(model))
    for name, layer in adapted_layers(model).items():
        assert torch.equal(saved[f"base_model.model.{name}.lora_B.weight"], layer.lora_B["default"].weight)


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"rank": 0}, "rank .*>= 1"),
        *(({"alpha": alpha}, "alpha > 0") for alpha in (0.0, float("inf"), float("nan"))),
        *(({"targets": targets}, "LoRA targets as a tuple of names, or all-linear") for targets in ((), "", "q_proj")),
    ],
)
def test_impossible_settings_are_refused(wrong, fact):
    with pytest.raises(ConfigError, match=f"wanted {fact}, got"):
        LoraSettings(**wrong)
