"""`tsr base-model`: a folder with a record of how it was made, or a message and no folder."""

import json
import re

import pytest
import torch

from tsr_gym.agents import cli
from tsr_gym.agents.models.language_model import load_policy

RECIPE = {"steps": 3, "instances": 6, "episodes": 2, "hidden": 16, "layers": 1, "batch": 8, "validations": 4}
TINY = [*(f"--{name}={number}" for name, number in RECIPE.items()), "--poor-steps=0", "--band", "0", "1"]


def test_a_model_is_built_as_the_recipe_says_and_what_is_done_is_told(capsys, tmp_path):
    out = tmp_path / "deep" / "model"
    assert cli.main(["base-model", "frozen_lake", "--out", str(out), "--seed", "5", "--keep-skilled", *TINY]) == 0
    shown = capsys.readouterr()
    policy = load_policy(out, device=torch.device("cpu"))
    assert (policy.model.config.hidden_size, policy.model.config.num_hidden_layers) == (16, 1)
    assert policy.card.env == load_policy(out / "skilled", device=torch.device("cpu")).card.env == "tsr/FrozenLake-v0"
    about = json.loads((out / "tsr_gym.json").read_text())["about"]
    assert (about["recipe"]["seed"], about["recipe"]["steps"]) == (5, 3)
    lines = shown.out.splitlines()
    assert lines[0] == "playing mostly optimally"
    assert re.fullmatch(r"imitating \d+ turns of it", lines[1])
    assert lines[2:5] == ["step 1 of 3", "step 2 of 3", "step 3 of 3"]
    assert lines[-1] == (
        f"{out}: success {about['success']:.3f} on validation instances, sampled at temperature 0.5; "
        f"{about['success_skilled']:.3f} before it was hidden"
    )
    assert shown.err == ""


@pytest.mark.parametrize("behind", [False, True], ids=["first", "behind its flags"])
def test_a_world_of_words_of_ones_own_has_the_recipe_of_its_kind(capsys, tmp_path, behind):
    env = "tests.agents.teaching.foreign_shop:my/Errand-v0"
    flags = ["--out", str(tmp_path / "model"), "--hidden", "16", *(() if behind else ("--drill-steps", "1"))]
    if behind:
        # Of its recipe, and of no other: what it is by default shows in what is refused.
        flags += ["--band", "0.02", "0.08", "--validations", "8"]
    assert cli.main(["base-model", *([*flags, env] if behind else [env, *flags])]) == 2
    wanted = "8 validations cannot show" if behind else "after 1 steps the model copies"
    assert wanted in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
