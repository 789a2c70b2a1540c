"""The embedded base model: its folder, that it is built reproducibly, and how its skill is hidden."""

import hashlib
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.pay.plan import BASES
from tests.agents.conftest import SMALL
from tsr_gym import ConfigError
from tsr_gym.agents.cli import main
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.models.settings import SHIPPED
from tsr_gym.agents.models.tokenizer import load_tokenizer
from tsr_gym.agents.teaching import base_model as module
from tsr_gym.agents.teaching.base_model import build_base_model, default_model, hide_skill
from tsr_gym.agents.teaching.base_recipe import BaseRecipe, check_recipe

CPU = torch.device("cpu")
TINIEST = replace(SMALL, steps=3, instances=6, episodes=2, hidden=16, batch=8)


def test_the_folder_holds_a_model_and_its_card(base_model):
    card = load_policy(base_model, device=CPU).card
    assert (card.prompt, card.history, card.env, card.max_tokens) == ("compact", "markov", "tsr/Sokoban-v0", 16)
    assert card.env_settings == {"obs_type": "compact"}
    assert card.about["recipe"]["steps"] == SMALL.steps
    assert 0.0 <= card.about["success"] <= 1.0


def test_every_symbol_of_the_game_is_one_token(base_model):
    policy = load_policy(base_model, device=CPU)
    pool = EnvPool("sokoban", {"obs_type": "compact"}, think=False)
    for task in range(30):
        text = str(pool.set([task])[0].tree.nodes[0].observation)
        assert len(policy.tokenizer(text, add_special_tokens=False)["input_ids"]) == len(text.split())
    answer = policy.tokenizer("Up || Down || Left || Right</answer>", add_special_tokens=False)["input_ids"]
    assert len(answer) == 8


def test_the_same_recipe_gives_the_same_bytes_and_another_seed_another_model(tmp_path):
    abouts = [
        build_base_model("sokoban", tmp_path / name, recipe)
        for name, recipe in (("one", TINIEST), ("two", TINIEST), ("other", replace(TINIEST, seed=1)))
    ]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two", "other")]
    assert weights[0] == weights[1] != weights[2]
    assert abouts[0] == abouts[1]
    assert (tmp_path / "one" / "manifest.json").read_bytes() == (tmp_path / "two" / "manifest.json").read_bytes()


def test_a_folder_that_exists_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ConfigError, match="exists"):
        build_base_model("sokoban", tmp_path, TINIEST)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("sokoban", ("num_boxes=99",), "wanted 1 to 8 boxes"),
        ("frozen_lake", ("max_actions=null",), "tsr/FrozenLake-v0 has no oracle with these settings"),
    ],
)
def test_nothing_is_built_without_good_play_to_imitate(tmp_path, env, settings, message):
    with pytest.raises(ConfigError, match=message):
        build_base_model(env, tmp_path / "model", replace(TINIEST, env_set=settings))
    assert not (tmp_path / "model").exists()


def test_a_default_model_is_built_once_per_environment_and_settings(tmp_path, monkeypatch):
    built = []

    def build(env, folder, recipe, *, keep_skilled, note):
        assert keep_skilled
        built.append((env, recipe.env_set))
        folder.mkdir(parents=True)

    monkeypatch.setattr(module, "build_base_model", build)
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    notes = []
    asked = ("sokoban",), ("tsr/Sokoban-v0",), *[("sokoban", ["dim=[7,7]"])] * 2, ("frozen_lake",)
    folders = [default_model(*args, note=notes.append) for args in asked]
    assert built == [("sokoban", ()), ("sokoban", ("dim=[7,7]",)), ("frozen_lake", ())]
    assert (len(set(folders)), folders[0]) == (3, folders[1])
    assert all(folder.parent == tmp_path / "cache" / "models" for folder in folders)
    assert len(notes) == 3
    monkeypatch.delenv("TSR_GYM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_model("sokoban").is_relative_to(tmp_path / "xdg" / "tsr-gym")


# Hashes of weights and tokenizer of recipes with three steps and one burst, as the first version wrote them.
FIRST = {
    ("sokoban", ()): ("156704494f3d6d09", "3e7dffbb56db4904"),
    ("frozen_lake", ()): ("3aeb64f879b804b8", "a8bd3d6d9414707f"),
    ("sokoban", ("solution_length=[3,10]",)): ("a54295119100f008", "3e7dffbb56db4904"),
}


@pytest.mark.parametrize(("env", "settings"), FIRST)
def test_models_of_grid_worlds_equal_those_of_the_first_version_bit_for_bit(tmp_path, env, settings):
    recipe = replace(TINIEST, env_set=settings, layers=1, poor_steps=20, band=(-1.0, -1.0))
    build_base_model(env, tmp_path / "model", recipe)
    files = (tmp_path / "model" / name for name in ("model.safetensors", "tokenizer.json"))
    weights, words = (hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files)
    assert words == FIRST[env, settings][1]
    if (torch.__version__, torch.backends.cpu.get_cpu_capability()) != ("2.13.0+cpu", "AVX512"):
        pytest.skip("the reference was written by torch 2.13.0 with AVX512; other versions round sums differently")
    assert weights == FIRST[env, settings][0]


def test_the_skilled_stage_is_kept_on_request(tmp_path):
    recipe = replace(TINIEST, poor_steps=20, band=(-1.0, -1.0))
    build_base_model("frozen_lake", tmp_path / "model", recipe, keep_skilled=True)
    skilled, hidden = (load_policy(folder, device=CPU) for folder in (tmp_path / "model/skilled", tmp_path / "model"))
    assert skilled.card.about["success"] == hidden.card.about["success_skilled"]
    pairs = zip(skilled.model.parameters(), hidden.model.parameters(), strict=True)
    assert not all(torch.equal(*pair) for pair in pairs)
    build_base_model("frozen_lake", tmp_path / "other", replace(recipe, poor_steps=0))
    unhidden = load_policy(tmp_path / "other", device=CPU).model
    assert all(torch.equal(a, b) for a, b in zip(skilled.model.parameters(), unhidden.parameters(), strict=True))
    assert not (tmp_path / "other" / "skilled").exists()


@pytest.mark.parametrize(
    ("band", "validations", "message"),
    [
        ((0.0005, 0.002), 256, "256 validations .* from 0.0005 to 0.002.*>= 1501"),
        ((0.002, 0.01), 256, "at most 2 of them.*>= 301"),
        ((0.3, 0.1), 256, "wanted a band from low to high"),
    ],
)
def test_a_band_that_cannot_be_measured_is_refused(tmp_path, band, validations, message):
    recipe = replace(TINIEST, band=band, validations=validations)
    with pytest.raises(ConfigError, match=message):
        build_base_model("frozen_lake", tmp_path / "model", recipe)


class Model:
    """A model with a number as its only weight."""

    weight = torch.tensor(0)

    def state_dict(self):
        return {"weight": self.weight}

    def load_state_dict(self, state):
        self.weight = state["weight"]


def plays(success, valid=1.0):
    return SimpleNamespace(success=success, valid=valid)


def hide(measured, *, success=0.8, bursts=10, **more):
    """Return the model, the learning rates of the bursts, the notes, and the last evaluation."""
    model, rates, notes, measures = Model(), [], [], iter(measured)

    def burst(lr):
        rates.append(lr)
        model.weight = model.weight + 1

    settings = {"band": (0.05, 0.2), "bursts": bursts, "lr": 0.1, "note": notes.append} | more
    end = hide_skill(model, burst, lambda: next(measures), plays(success), **settings)
    return model, rates, notes, end


def test_poor_play_is_imitated_until_success_is_in_the_band_and_never_below_it():
    # Two bursts down, the third one too far, and a smaller one into the band.
    model, rates, _, end = hide(map(plays, [0.6, 0.4, 0.01, 0.1]))
    assert end.success == 0.1
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05])
    # The burst that went too far was undone.
    assert model.weight == 3


def test_bursts_are_undone_where_they_break_answers_and_not_needed_at_low_success():
    _, rates, notes, end = hide([], success=0.15)
    assert (rates, notes, end.success) == ([], [], 0.15)
    model, rates, _, end = hide([plays(0.1, valid=0.4), plays(0.1, valid=0.9)], least_valid=0.7)
    assert (rates, end.valid, model.weight) == ([0.1, 0.05], 0.9, 1)
    *_, notes, end = hide(map(plays, [0.6, 0.5]), bursts=2)
    assert end.success == 0.5
    assert "still above 0.2" in notes[-1]


def test_of_bursts_that_all_end_above_the_band_the_best_is_kept():
    model, _, _, end = hide(map(plays, [0.344, 0.273, 0.221, 0.25]), bursts=4)
    assert (end.success, model.weight) == (0.221, 3)


@pytest.mark.parametrize(("band", "validations"), [((0.0, 0.004), 128), ((0.01, 0.02), 128)])
def test_a_band_that_the_validations_cannot_resolve_is_refused(tmp_path, band, validations):
    with pytest.raises(ConfigError, match="128 validations cannot show a success from"):
        check_recipe("sokoban", tmp_path / "model", BaseRecipe(band=band, validations=validations))
    check_recipe("sokoban", tmp_path / "model", BaseRecipe(band=(0.0, 0.0), validations=validations))


@pytest.mark.deep
def test_the_numbers_of_countdown_are_tokens_though_no_demonstration_shows_them_all(tmp_path):
    build_base_model("countdown", tmp_path / "model", replace(TINIEST, poor_steps=20, band=(-1.0, -1.0)))
    tokenizer = load_tokenizer(tmp_path / "model")
    assert all(len(tokenizer.encode(f"{number} + 3 = 7")) == 5 for number in range(200))


@pytest.mark.parametrize(("env", "skilled"), [("sokoban", 0.5), ("frozen_lake", 0.35)])
def test_the_default_recipe_ends_in_its_band(env, skilled, tmp_path):
    recipe = BaseRecipe()
    about = build_base_model(env, tmp_path / "model", recipe)
    low, high = recipe.band
    assert low <= about["success"] <= high
    assert about["success_skilled"] > skilled
    assert json.loads((tmp_path / "model" / "tsr_gym.json").read_text())["about"] == about | {
        "recipe": json.loads(json.dumps(about["recipe"]))
    }


@pytest.mark.deep
def test_the_recipe_of_the_shipped_model_builds_it(tmp_path):
    assert main(["base-model", *BASES["S1"].split(), "--out", str(tmp_path / "S1")]) == 0
    built, shipped = (load_file(folder / "S1" / "model.safetensors") for folder in (tmp_path, SHIPPED))
    # Bit for bit on the machine that built it; elsewhere rounding grows over thousands of steps.
    names = [name for name, tensor in shipped.items() if not torch.equal(tensor, built[name])]
    about, card = (json.loads((folder / "S1" / "tsr_gym.json").read_text())["about"] for folder in (tmp_path, SHIPPED))
    assert about["recipe"] == card["recipe"]
    assert not names or about["success_skilled"] == pytest.approx(card["success_skilled"], abs=0.15)
