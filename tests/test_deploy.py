"""The files for clusters: they can be read, and their `tsr` lines are understood."""

import re
import shlex
import subprocess
from typing import Any

import pytest
import tyro
import yaml

from tests.conftest import ROOT
from tests.test_documents import Parsed, tsr_arguments
from tsr_gym.agents import cli

FOLDER = ROOT / "docs" / "deploy"
FILES = sorted(path for path in FOLDER.iterdir() if path.is_file())


def train_lines(path):
    """Return the arguments of `tsr train` in the commands of a file, for new and resumed runs."""
    text = re.sub(r"^# ?", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        if "tsr train " not in line and "tsr_gym train " not in line:
            continue
        # Docker's line names the container as the command is named.
        line = line.replace("-it tsr tsr", "-it container tsr").replace("${nodes[@]:1}", "")
        if "${what[@]}" not in line:
            found.append(line)
            continue
        found += [line.replace('"${what[@]}"', what) for what in re.findall(r"what=\((.*?)\)", text)]
    return [tsr_arguments(line) for line in found]


LINES = [(path.name, given) for path in FILES for given in train_lines(path) if given]


def test_the_scripts_train():
    assert {name for name, _ in LINES} == {"ray.slurm", "ray_cluster.yaml", "torchrun.sh"}
    assert sum("--resume" in given for _, given in LINES) == 2


@pytest.mark.parametrize(("name", "given"), LINES, ids=[f"{name}: {' '.join(given)}" for name, given in LINES])
def test_a_command_of_a_script_is_understood(name, given, monkeypatch):
    parse = tyro.cli

    def only_parse(*args: Any, **kwargs: Any) -> Any:
        raise Parsed(parse(*args, **kwargs))

    monkeypatch.setattr(tyro, "cli", only_parse)
    with pytest.raises(Parsed) as parsed:
        cli.main(given)
    # New and resumed runs have the same flags for workers.
    assert parsed.value.args[0].workers.ray != "off"


@pytest.mark.parametrize("name", ["ray.slurm", "torchrun.sh"])
def test_a_script_is_bash(name):
    done = subprocess.run(["bash", "-n", FOLDER / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_cluster_has_a_head_with_an_address_and_workers_that_find_it():
    cluster = yaml.safe_load((FOLDER / "ray_cluster.yaml").read_text(encoding="utf-8"))
    assert len(cluster["provider"]["worker_ips"]) == cluster["max_workers"] == cluster["min_workers"]
    assert "--head --port=6379" in cluster["head_start_ray_commands"][-1]
    assert "--address=$RAY_HEAD_IP:6379" in cluster["worker_start_ray_commands"][-1]


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.gpu"])
def test_an_image_has_the_versions_that_are_tested(name):
    text = (FOLDER / name).read_text(encoding="utf-8")
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    for pin in ("torch==2.13.0", "ray==2.60.0"):
        assert pin in text
        assert pin in make
    assert {"envs", "cli", "agents"} <= {*re.search(r'"\.\[(.*?)\]"', text)[1].split(",")}
    assert [shlex.split(line)[1] for line in text.splitlines() if line.startswith("USER")] == ["trainer"]
