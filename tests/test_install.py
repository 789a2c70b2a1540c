"""An archive of the repository that was unpacked without links installs the whole package, and it trains an update."""

import os
import subprocess
import sys
import zipfile

import pytest

from tests.conftest import ROOT

# Trains one update of plain play on a random model, from the installed package alone.
TRAIN = """
import sys
sys.path.insert(0, {site!r})
import tsr_gym.agents, tsr_gym.wrappers
assert tsr_gym.agents.__file__.startswith({site!r}), tsr_gym.agents.__file__
assert tsr_gym.wrappers.__file__.startswith({site!r}), tsr_gym.wrappers.__file__
from pathlib import Path
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.models.tiny_model import tiny_model
from tsr_gym.agents.models.tokenizer import tiny_tokenizer
from tsr_gym.agents.runs.train import train
tokenizer = tiny_tokenizer(["Up", "Down", "Left", "Right", "||", "<think></think>", "#", "_", "O", "X", "P"])
tiny_model(tokenizer, hidden=32, context=4096).save_pretrained("model")
tokenizer.save_pretrained("model")
few = dict(groups=2, trajectories=2, max_tokens=8, eval_instances=2, algorithm="grpo", filter="none")
# The trie engine would compile its functions anew for this copy of the package.
few["engine"] = "transformers"
run = train(TrainConfig.from_recipe(env="sokoban", model="model", updates=1, out=Path("run"), **few))
print(run.finished, len(run.updates))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A zip of all files of the project, each as a plain file."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("the files of an archive are those that git lists, and this is no checkout")
    path = tmp_path_factory.mktemp("archive") / "tsr-gym.zip"
    with zipfile.ZipFile(path, "w") as written:
        for name in listed.stdout.splitlines():
            # Tests, documents and results are not installed.
            if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "benchmarks/")):
                written.write(ROOT / name, name)
    return path


def test_a_package_from_an_archive_trains_an_update(archive, tmp_path):
    with zipfile.ZipFile(archive) as read:
        read.extractall(tmp_path / "source")
    site = tmp_path / "site"
    pip = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-compile",
        "--target", str(site),
    ]  # fmt: skip
    installed = subprocess.run([*pip, str(tmp_path / "source")], capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr[-2000:]
    assert {path.name for path in site.iterdir() if path.is_dir()} >= {"tsr_gym", "tsr_gym_envs"}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN.format(site=str(site))], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "True 1"
