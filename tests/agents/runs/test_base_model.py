"""The embedded base model: a folder like any other, made the same way every time."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests.agents.conftest import SMALL
from tsr_gym import ConfigError
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.models.tiny_model import END
from tsr_gym.agents.runs import base_model as module
from tsr_gym.agents.runs.base_model import build_base_model, default_model
from tsr_gym.agents.runs.base_recipe import BaseRecipe

CPU = torch.device("cpu")
TINIEST = replace(SMALL, steps=3, instances=6, episodes=2, hidden=16, batch=8)


def test_the_folder_holds_a_model_and_how_to_speak_to_it(base_model):
    policy = load_policy(base_model, device=CPU)
    card = policy.card
    assert (card.prompt, card.history, card.env, card.max_tokens) == ("compact", "markov", "tsr/Sokoban-v0", 16)
    assert card.env_settings == {"obs_type": "compact"}
    assert card.about["recipe"]["steps"] == SMALL.steps
    assert 0.0 <= card.about["success"] <= 1.0


def test_every_sign_of_the_game_is_one_token(base_model):
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
    with pytest.raises(ConfigError, match="exists: choose another folder"):
        build_base_model("sokoban", tmp_path, TINIEST)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("nonsense", (), "there is no environment 'nonsense'"),
        ("sokoban", ("num_boxes=99",), "wanted 1 to 8 boxes"),
        ("frozen_lake", ("max_actions=null",), "tsr/FrozenLake-v0 has no oracle with these settings"),
    ],
)
def test_where_there_is_nothing_to_imitate_nothing_is_built(tmp_path, env, settings, message):
    with pytest.raises(ConfigError, match=message):
        build_base_model(env, tmp_path / "model", replace(TINIEST, env_set=settings))
    assert not (tmp_path / "model").exists()


def test_demonstrations_are_optimal_random_or_malformed_as_often_as_the_recipe_says():
    pool = EnvPool("sokoban", {"obs_type": "compact", "split": "train"}, think=False)

    class Spelling:
        """A policy's prompts and tokens, as plain text."""

        def prompt_ids(self, tree, node):
            return tree, node

        def tokenizer(self, text, add_special_tokens):
            return {"input_ids": [text]}

    def shown(**shares):
        return module._demonstrate(pool, Spelling(), module._Play(**shares), range(1, 91))

    def outcome(example):
        tree, node = example.prompt
        return tree.nodes[tree.children(node)[0]]

    best = shown(skill=1.0, malformed=0.0)
    assert all(outcome(example).info["action_is_valid"] for example in best)
    # Train rooms have solutions of at most ten moves, five to a turn: two optimal turns solve every one.
    ends = [outcome(example) for example in best if outcome(example).done]
    assert len(ends) == 90
    assert all(node.info["success"] and node.depth <= 2 for node in ends)
    poor = shown(skill=0.0, malformed=0.5, one_action=0.8)
    said = [example.answer[0] for example in poor]
    # One kind in three drops the separators, which is no fault where there is one action.
    bad = sum(not outcome(example).info["action_is_valid"] for example in poor) / len(poor)
    assert 0.28 <= bad <= 0.52
    assert any(text.endswith(END) for text in said)
    assert sum("||" not in text for text in said) / len(said) > 0.7


def test_only_the_answers_are_learned():
    examples = [module._Example((5, 6, 7), (8, 9)), module._Example((1,), (2,))]
    ids, labels = module._padded(examples)
    assert ids.tolist() == [[5, 6, 7, 8, 9], [1, 2, 0, 0, 0]]
    assert labels.tolist() == [[-100, -100, -100, 8, 9], [-100, 2, -100, -100, -100]]


def test_a_default_model_is_built_once_per_environment_and_settings(tmp_path, monkeypatch):
    built = []

    def build(env, folder, recipe, *, note):
        built.append((env, recipe.env_set))
        folder.mkdir(parents=True)

    monkeypatch.setattr(module, "build_base_model", build)
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    notes = []
    folders = [
        default_model(*args, note=notes.append)
        for args in (
            ("sokoban",),
            ("tsr/Sokoban-v0",),
            ("sokoban", ["dim=[7,7]"]),
            ("sokoban", ["dim=[7,7]"]),
            ("frozen_lake",),
        )
    ]
    assert built == [("sokoban", ()), ("sokoban", ("dim=[7,7]",)), ("frozen_lake", ())]
    assert len(set(folders)) == 3
    assert folders[0] == folders[1]
    assert all(folder.parent == tmp_path / "cache" / "models" for folder in folders)
    assert len(notes) == 3
    monkeypatch.delenv("TSR_GYM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_model("sokoban").is_relative_to(tmp_path / "xdg" / "tsr-gym")


def test_poor_play_is_imitated_until_success_is_in_the_band_and_never_below_it(monkeypatch):
    class Model:
        """Remembers a number as its only weight."""

        weight = torch.tensor(0)

        def state_dict(self):
            return {"weight": self.weight}

        def load_state_dict(self, state):
            self.weight = state["weight"]

    model, rates, notes = Model(), [], []

    def imitate(model, examples, recipe, *, steps, lr, final, warmup):
        rates.append(lr)
        model.weight = model.weight + 1

    # By the model's weight: two steps down, the third one too far; smaller, it lands in the band.
    successes = iter([0.6, 0.4, 0.01, 0.1])
    monkeypatch.setattr(module, "_imitate", imitate)
    monkeypatch.setattr(module, "_success", lambda player, recipe: next(successes))
    recipe = replace(SMALL, band=(0.05, 0.2), poor_steps=200, lr=0.4)
    player = SimpleNamespace(policy=SimpleNamespace(model=model))
    assert module._hide(player, [], recipe, 0.8, notes.append) == 0.1
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05])
    # The step that went too far was taken back.
    assert model.weight == 3
    assert module._hide(player, [], recipe, 0.15, notes.append) == 0.15
    assert len(rates) == 4
    successes = iter([0.6, 0.5])
    assert module._hide(player, [], replace(recipe, poor_steps=40), 0.8, notes.append) == 0.5
    assert "still above 0.2" in notes[-1]


@pytest.mark.deep
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
