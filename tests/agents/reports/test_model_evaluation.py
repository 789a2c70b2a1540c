"""Evaluation of a folder: its files decide the settings, and the result equals an evaluation by hand."""

import shutil
from functools import partial

import pytest
import torch

from tsr_gym import CheckpointError, ConfigError
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.play import bars, evaluate, held_out
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.reports.model_evaluation import evaluate_model
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.strategies import beam
from tsr_gym.agents.teaching import base_model as base_model_module

TASK, NAIVE, MODEL = TaskConfig(), SearchConfig(), ModelConfig(max_tokens=6)


def played(
    source, env=None, *, split="test", instances=8, temperature=0.5, seed=0, task=TASK, search=NAIVE, model=MODEL
):
    return evaluate_model(str(source), env, split, instances, temperature, seed, task, search, model)


def by_hand(folder, *, env="sokoban", split="test", temperature=0.5, seed=0, instances=8, **settings):
    """Play the model in a folder without `evaluate_model`."""
    player = ModelPlayer(env, TASK, MODEL, load_policy(folder, device=torch.device("cpu")))
    pool = player.pool(split)
    chat = player.chat(pool.base.instructions, temperature=temperature)
    tasks = held_out(instances)
    return evaluate(pool, chat, tasks=tasks, seed=seed, **settings), bars(pool, tasks=tasks)


def test_a_model_plays_the_environment_of_its_card_and_has_bars(base_model):
    result = played(base_model)
    assert (result.evaluation, result.bars) == by_hand(base_model)
    assert (result.evaluation.instances, result.bars.optimal) == (8, 1.0)
    assert result.instances_of == "tsr/Sokoban-v0, preset paper, split test, no search"


def test_every_setting_reaches_the_play(base_model):
    changed = {"split": "train", "temperature": 1.5, "seed": 3, "instances": 5}
    result = played(base_model, **changed)
    assert (result.evaluation, result.bars) == by_hand(base_model, **changed)
    assert "split train" in result.instances_of
    assert result.evaluation != by_hand(base_model, instances=5)[0]


def test_a_run_has_its_environment_its_settings_and_its_latest_model(undisturbed):
    # Given settings of task and model have no effect: the run's configuration replaces them.
    result = played(undisturbed, "sokoban", task=TaskConfig(preset="tsr-code"), model=ModelConfig(max_tokens=1))
    latest = checkpoints(undisturbed)[-1] / "model"
    assert (result.evaluation, result.bars) == by_hand(latest)
    assert result.instances_of == "sokoban, preset paper, split test, no search"
    assert result.evaluation != by_hand(checkpoints(undisturbed)[0] / "model")[0]
    with pytest.raises(ConfigError, match="plays sokoban: leave out --env, got frozen_lake"):
        played(undisturbed, "frozen_lake")


def test_with_a_search_every_turn_is_searched_and_then_played(base_model):
    search = SearchConfig(search="beam(width=1, branching=4)")
    result = played(base_model, search=search, instances=4)
    strategy = partial(beam, width=1, branching=4, depth=None)
    assert result.evaluation == by_hand(base_model, strategy=strategy, instances=4)[0]
    assert result.instances_of.endswith("split test, search beam(width=1, branching=4)")


@pytest.mark.parametrize("noise", ["fresh", "same"])
def test_a_clairvoyant_search_is_marked(base_model, noise):
    search = SearchConfig(search="beam", noise=noise)
    assert ("clairvoyant" in played(base_model, search=search, instances=1).instances_of) == (noise == "same")
    # Without a search the noise is not used.
    assert "clairvoyant" not in played(base_model, search=SearchConfig(noise=noise), instances=1).instances_of


def test_the_default_model_is_that_of_the_environment(base_model, monkeypatch):
    asked = []
    monkeypatch.setattr(base_model_module, "default_model", lambda *args: asked.append(args) or base_model)
    result = played("default", "sokoban", task=TaskConfig(env_set=("max_turns=2",)), instances=2)
    assert asked == [("sokoban", ("max_turns=2",))]
    assert result.evaluation.turns <= 2


def test_a_model_that_was_made_for_no_environment_needs_one(chat_model):
    with pytest.raises(ConfigError, match=r"wanted --env: the model in .* was made for none"):
        played(chat_model)
    assert played(chat_model, "frozen_lake", instances=1).instances_of.startswith("frozen_lake, ")
    with pytest.raises(ConfigError, match="wanted --env for the default model"):
        played("default")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instances": 0}, "wanted eval_instances as a whole number >= 1, got 0"),
        ({"temperature": -1.0}, "wanted eval_temperature >= 0, got -1"),
        ({"split": "exam"}, "wanted split of"),
        ({"model": ModelConfig(device="cuda:99")}, "wanted device cuda:99"),
        ({"env": "frozen_lake"}, "made for tsr/Sokoban-v0, wanted is tsr/FrozenLake-v0"),
    ],
)
def test_impossible_settings_are_refused(base_model, changes, message):
    with pytest.raises(ConfigError, match=message):
        played(base_model, **changes)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="wanted the folder of a Hugging Face model"):
        played(tmp_path / "nowhere")


def flip_last_bit(file):
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize(
    ("harm", "error", "message"),
    [
        (
            lambda run: flip_last_bit(run / "checkpoints" / "000005" / "model" / "model.safetensors"),
            CheckpointError,
            r"model\.safetensors: missing or damaged: delete 000005",
        ),
        (lambda run: shutil.rmtree(run / "checkpoints"), CheckpointError, "run: wanted the folder of a Hugging Face"),
        (lambda run: (run / "run.toml").write_text("{"), ConfigError, r"run\.toml: wanted TOML"),
    ],
    ids=["damaged checkpoint", "no checkpoint", "damaged configuration"],
)
def test_a_damaged_run_is_named_and_not_played(undisturbed, tmp_path, harm, error, message):
    run = shutil.copytree(undisturbed, tmp_path / "run")
    harm(run)
    with pytest.raises(error, match=message):
        played(run)
