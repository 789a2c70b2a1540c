"""Models from folders: errors for missing and broken files, and no invented values."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.measure import RESULTS
from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tsr_gym import CheckpointError, ConfigError
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.models.language_model import (
    LanguageModel,
    ModelCard,
    frozen_reference,
    load_critic,
    load_policy,
    pick_autocast,
    pick_device,
    save_policy,
    stop_ids,
)
from tsr_gym.agents.models.settings import SHIPPED, model_path

CPU = torch.device("cpu")


@pytest.fixture
def folder(chat_model, tmp_path):
    return shutil.copytree(chat_model, tmp_path / "model")


def rewrite(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_model_is_loaded_in_full_precision_with_its_tokenizer_and_a_default_card(folder):
    policy = load_policy(folder, device=CPU)
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.float32}
    assert policy.card == ModelCard(prompt="paper", history="full", env=None)
    assert policy.tokenizer.decode(policy.tokenizer("Up || √")["input_ids"]) == "Up || √"
    assert not policy.model.training


def test_loading_and_saving_draw_no_progress_bars_and_leave_those_of_others(folder, tmp_path, capfd):
    policy = load_policy(folder, device=CPU)
    load_critic(folder, device=CPU)
    save_policy(policy, tmp_path / "copy")
    assert capfd.readouterr().err == ""
    policy.model.save_pretrained(tmp_path / "by hand")
    assert "Writing model shards" in capfd.readouterr().err


def test_weights_are_loaded_in_full_precision_unless_half_is_wanted(folder):
    rewrite(folder, lambda tensors: tensors.update({name: value.bfloat16() for name, value in tensors.items()}))
    assert {parameter.dtype for parameter in load_policy(folder, device=CPU).model.parameters()} == {torch.float32}
    policy = load_policy(folder, device=CPU, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.bfloat16}
    full = load_policy(folder, device=CPU).model.state_dict()
    assert all(torch.equal(value, full[name].bfloat16()) for name, value in policy.model.state_dict().items())


@pytest.mark.parametrize("name", ["nowhere", "a/file.txt"])
def test_a_folder_without_a_model_says_what_was_wanted(folder, name):
    (folder / "a").mkdir()
    (folder / "a" / "file.txt").write_text("")
    with pytest.raises(CheckpointError, match=r"wanted the folder of a Hugging Face model .*, found none"):
        load_policy(folder / name, device=CPU)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "no such thing"}'),
        ("model.safetensors", b""),
        ("model.safetensors", b"not safetensors at all"),
        ("model.safetensors", "cut"),
        ("model.safetensors", None),
        ("tokenizer.json", b"{"),
    ],
)
def test_a_damaged_model_is_told_by_its_folder(folder, name, data):
    file = folder / name
    if data is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:20_000] if data == "cut" else data)
    with pytest.raises(CheckpointError, match=r"/model: the model or its tokenizer cannot be read \("):
        load_policy(folder, device=CPU)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_model_that_brings_code_is_refused_and_its_code_never_run(folder, file):
    (folder / "own.py").write_text("raise SystemExit('this code was run')")
    content = json.loads((folder / file).read_text()) | {"auto_map": {"AutoModelForCausalLM": "own.Model"}}
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=rf"{file} has auto_map.*never run"):
        load_policy(folder, device=CPU)


def test_parameters_that_are_missing_are_not_made_up(folder):
    rewrite(folder, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(CheckpointError, match=r"1 parameters are missing, such as .*layers\.1\.mlp\.up_proj\.weight"):
        load_policy(folder, device=CPU)


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_parameters_that_are_no_numbers_and_a_tokenizer_of_another_model_are_named(folder, bad):
    rewrite(folder, lambda tensors: tensors["model.norm.weight"].__setitem__(3, bad))
    with pytest.raises(CheckpointError, match=r"1 parameters are not finite, such as model\.norm\.weight"):
        load_policy(folder, device=CPU)
    tokenizer = chatml_tokenizer()
    tokenizer.add_tokens([f"word{number}" for number in range(10)])
    tokenizer.save_pretrained(folder)
    rewrite(folder, lambda tensors: tensors["model.norm.weight"].__setitem__(3, 1.0))
    with pytest.raises(CheckpointError, match="526 tokens and the model 516: they do not belong together"):
        load_policy(folder, device=CPU)


def test_a_card_comes_back_as_it_was_saved(folder):
    facts = {"env": "tsr/Sokoban-v0", "env_settings": {"dim": [5, 5]}, "max_tokens": 9, "about": {"x": 1}}
    card = ModelCard(prompt="compact", history="window(1)", **facts)
    card.save(folder)
    assert load_policy(folder, device=CPU).card == card
    ModelCard(env="x").save(folder)
    assert json.loads((folder / "tsr_gym.json").read_text())["env"] == "x"


@pytest.mark.parametrize("text", ["{", "[]", '{"colour": "red"}', "3"])
def test_a_damaged_card_is_told(folder, text):
    (folder / "tsr_gym.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"tsr_gym\.json: not a model card .*delete it, or build the model again"):
        load_policy(folder, device=CPU)


def test_a_critic_begins_with_the_policys_body_and_values_of_zero(folder):
    policy, critic = load_policy(folder, device=CPU), load_critic(folder, device=CPU)
    body = policy.model.model.state_dict()
    assert all(torch.equal(body[name], value) for name, value in critic.backbone.state_dict().items())
    assert len(body) == len(critic.backbone.state_dict())
    ids = torch.tensor([[5, 6, 7]])
    assert torch.count_nonzero(critic(ids, ids > 0)) == 0


def test_tensors_that_were_gathered_elsewhere_are_written_in_place_of_the_models_own(folder, tmp_path):
    policy = load_policy(folder, device=CPU)
    other = random_qwen2(policy.tokenizer, seed=5).state_dict()
    save_policy(policy, tmp_path / "copy", weights={name: value.clone() for name, value in other.items()})
    # The output layer is the embedding's tensor, and is written once.
    assert "lm_head.weight" not in load_file(tmp_path / "copy" / "model.safetensors")
    found = load_policy(tmp_path / "copy", device=CPU).model.state_dict()
    assert found.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in found.items())


def test_a_reference_is_a_copy_that_neither_moves_nor_learns(folder):
    policy = load_policy(folder, device=CPU)
    wanted = {name: value.clone() for name, value in policy.model.state_dict().items()}
    reference = frozen_reference(policy)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter += 1
    assert all(torch.equal(value, wanted[name]) for name, value in reference.state_dict().items())
    assert not any(parameter.requires_grad for parameter in reference.parameters())
    assert all(parameter.requires_grad for parameter in policy.model.parameters())


def policy_of(generation, tokenizer=None):
    tokenizer = tokenizer or chatml_tokenizer()
    model = random_qwen2(tokenizer)
    model.generation_config.eos_token_id = generation
    return LanguageModel(model, tokenizer, ModelCard())


def test_an_answer_ends_at_the_end_tokens_of_model_and_tokenizer_or_at_a_text_of_one_token():
    tokenizer = chatml_tokenizer()
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    assert (end, pad, stop_ids(policy_of(end))) == (2, 0, [2])
    # As Qwen2.5 has it: the model also ends with the end of the text.
    assert (stop_ids(policy_of([pad, end])), stop_ids(policy_of(7))) == ([0, 2], [2, 7])
    assert stop_ids(policy_of(None)) == [2]
    tokenizer = chatml_tokenizer()
    tokenizer.add_tokens(["</answer>"])
    policy = policy_of(tokenizer.eos_token_id, tokenizer)
    assert stop_ids(policy, "</answer>") == [2, tokenizer.convert_tokens_to_ids("</answer>")]
    with pytest.raises(CheckpointError, match=r"wanted '</answer>!' to be one token, the tokenizer makes it 2"):
        stop_ids(policy, "</answer>!")
    tokenizer = chatml_tokenizer()
    policy = policy_of(None, tokenizer)
    tokenizer.eos_token = None
    with pytest.raises(CheckpointError, match="names no end token"):
        stop_ids(policy)


def test_devices_and_precision_by_name():
    assert pick_device("cpu") == CPU
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    number = torch.cuda.device_count()
    with pytest.raises(ConfigError, match=rf"wanted device cuda:{number}, this machine has {number} such"):
        pick_device(f"cuda:{number}")
    with pytest.raises(ConfigError, match="wanted a device such as auto, cpu, cuda or cuda:1, got 'toaster'"):
        pick_device("toaster")
    assert pick_autocast("auto", CPU) is None
    assert pick_autocast("auto", torch.device("cuda")) is torch.bfloat16
    assert pick_autocast("float32", torch.device("cuda")) is None
    assert pick_autocast("bfloat16", CPU) is torch.bfloat16


def test_the_shipped_model_is_named_in_place_of_a_folder_and_was_made_by_the_recipe_of_the_study(tmp_path, monkeypatch):
    config = TrainConfig.from_recipe("tsr+", env="sokoban", model="S1")
    assert config.model.model == str(SHIPPED / "S1")
    about = load_policy(SHIPPED / "S1", device=CPU).card.about
    bases = json.loads((RESULTS / "does_search_pay.json").read_text())["bases"]
    (row,) = [row for row in bases if row["base"] == "S1"]
    assert [about[name] for name in ("success_skilled", "success")] == [row["success_skilled"], row["success"]]
    # A folder of the user's with that name wins.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "S1").mkdir()
    assert model_path("S1") == "S1"
