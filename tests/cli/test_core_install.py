"""What works in a core install: a Python that finds nothing but what setup.cfg requires of everyone."""

import os
import subprocess
import sys
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement

from tests.conftest import ROOT
from tests.test_house import REQUIREMENTS


def closure(names):
    """Return the distributions that some distributions need, themselves included."""
    found, open_names = {}, list(names)
    while open_names:
        name = open_names.pop().lower().replace("_", "-")
        if name not in found:
            found[name] = distribution(name)
            needs = map(Requirement, found[name].requires or ())
            open_names += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found.values()


@pytest.fixture(scope="session")
def core(tmp_path_factory):
    """The site-packages of a core install, linked together from the installed packages."""
    site = tmp_path_factory.mktemp("core")
    for found in closure(REQUIREMENTS[""]):
        for top in {path.parts[0] for path in found.files} - {"..", "__pycache__"}:
            (site / top).symlink_to(found.locate_file(top))
    return site


@pytest.fixture
def run(core, tmp_path):
    """Return a function that runs Python in the core install."""

    def run(*args, stdin=""):
        return subprocess.run(
            # -S: without the site-packages of this very Python.
            [sys.executable, "-S", *args],
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={
                **os.environ,
                "PYTHONPATH": f"{core}{os.pathsep}{ROOT}",
                "PYTHONIOENCODING": "utf-8",
                "COLUMNS": "120",
            },
        )

    return run


@pytest.mark.parametrize("package", ["torch", "transformers", "numba", "bs4", "jinja2", "matplotlib"])
def test_the_install_has_nothing_of_the_extras(core, package):
    assert not (core / package).exists()


WORK = """
import sys
from functools import partial
import gymnasium as gym
import tsr_gym
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import beam, best_of_n, lookahead, naive
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, SokobanScore, TreeSearchWrapper

for name, score in (("tsr/Sokoban-v0", SokobanScore), ("tsr/FrozenLake-v0", FrozenLakeScore)):
    bare = gym.make(name)
    bare.reset(seed=1)
    saved = tsr_gym.snapshot(bare).to_bytes()
    after = bare.step("Left")
    tsr_gym.restore(bare, tsr_gym.Snapshot.from_bytes(saved))
    assert bare.step("Left") == after
    env = TreeSearchWrapper(score(AnswerFormat(gym.make(name))))
    policy = RandomPolicy(env.unwrapped.actions, max_actions=2)
    for strategy in (
        partial(naive, rollouts=2),
        partial(best_of_n, n=3),
        partial(beam, width=2, branching=3),
        partial(lookahead, branching=2, depth=1),
    ):
        env.reset(seed=3)
        assert len(env.search(policy, strategy).nodes) > 2
        env.reset(seed=3)
        assert env.rollout(policy, strategy).played[-1] > 0
assert not {"torch", "numba", "transformers"} & set(sys.modules)
print("all of it")
"""


def test_environments_snapshots_and_search_work(run):
    done = run("-c", WORK)
    assert (done.stdout, done.returncode) == ("all of it\n", 0), done.stderr


def test_the_command_explains_itself_and_its_training(run):
    for args, wanted in (
        ((), "tsr COMMAND --help"),
        (("train", "--help"), "--branching INT"),
        (("eval", "-h"), "--split"),
    ):
        done = run("-m", "tsr_gym.cli", *args)
        assert done.returncode == 0, done.stderr
        assert wanted in done.stdout


def test_a_room_can_be_played(run):
    done = run("-m", "tsr_gym.cli", "play", "sokoban", stdin="Up\nundo\nhint\nquit\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("return 0") == 2


@pytest.mark.parametrize(
    ("args", "package"),
    [
        (("train", "sokoban"), "torch"),
        (("train", "--resume", "runs/x"), "torch"),
        (("eval", "default"), "torch"),
        (("base-model", "sokoban", "--out", "model"), "torch"),
        (("report", "runs/x"), "matplotlib"),
        (("calibrate", "sokoban", "--out", "x"), "matplotlib"),
    ],
    ids=str,
)
def test_what_needs_an_extra_names_it_and_how_to_install_it(run, tmp_path, args, package):
    done = run("-m", "tsr_gym.cli", *args)
    assert done.returncode == 1
    assert done.stderr == (
        f"tsr {args[0]}: this needs the package {package!r}, which is not installed: pip install 'tsr-gym[agents]'\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_in_python_a_missing_package_is_an_error_with_the_same_line(run):
    done = run("-c", "from tsr_gym.optional import require; require('numba', 'envs')")
    assert done.returncode == 1
    wanted = "this needs the package 'numba', which is not installed: pip install 'tsr-gym[envs]'"
    assert done.stderr.endswith(f"tsr_gym.errors.MissingExtra: {wanted}\n")


@pytest.mark.parametrize("name", ["tsr/WebShop-v0", "tsr/RetrievalQA-v0"])
def test_worlds_that_need_more_name_the_extra(run, name):
    code = (
        f"import gymnasium, tsr_gym\ntry: gymnasium.make({name!r})\nexcept tsr_gym.MissingExtra as error: print(error)"
    )
    assert "pip install 'tsr-gym[envs]'" in run("-c", code).stdout
