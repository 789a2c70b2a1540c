"""What works in a core install: a Python that finds nothing but what setup.cfg requires of everyone."""

import json
import os
import subprocess
import sys
from functools import partial
from importlib.metadata import distribution, distributions

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


def linked(site, requirements):
    """Fill a folder with links to what an install has: the site-packages that these requirements make."""
    for found in closure(requirements):
        for top in {path.parts[0] for path in found.files} - {"..", "__pycache__"}:
            (site / top).symlink_to(found.locate_file(top))
    # This package as setup.py installs it, with agents and wrappers inside tsr_gym.
    (site / "tsr_gym").mkdir()
    for part in (*(ROOT / "tsr_gym").iterdir(), ROOT / "agents", ROOT / "wrappers"):
        (site / "tsr_gym" / part.name).symlink_to(part)
    (site / "tsr_gym_envs").symlink_to(ROOT / "tsr_gym_envs")
    return site


@pytest.fixture(scope="session")
def core(tmp_path_factory):
    """The site-packages of a core install."""
    return linked(tmp_path_factory.mktemp("core"), REQUIREMENTS[""])


@pytest.fixture(scope="session")
def with_command(tmp_path_factory):
    """The site-packages of an install with the extra cli and no other."""
    return linked(tmp_path_factory.mktemp("cli"), REQUIREMENTS[""] | REQUIREMENTS["cli"])


@pytest.fixture(scope="session")
def serving(tmp_path_factory):
    """The site-packages of an install with the extra serve and no other."""
    return linked(tmp_path_factory.mktemp("serve"), REQUIREMENTS[""] | REQUIREMENTS["serve"])


@pytest.fixture
def run(with_command, tmp_path):
    """Return a function that runs Python in an install with the extra cli."""
    return partial(run_in, with_command, tmp_path)


@pytest.fixture
def run_core(core, tmp_path):
    """Return a function that runs Python in a core install."""
    return partial(run_in, core, tmp_path)


def run_in(site, folder, *args, stdin=""):
    return subprocess.run(
        # -S: without the site-packages of this very Python.
        [sys.executable, "-S", *args],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONIOENCODING": "utf-8", "COLUMNS": "120"},
    )


ANSWERS = """
import contextlib, io, json, sys
from tsr_gym.agents import cli

answers = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = cli.main(words)
    answers.append((status, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""


def answers(run, *commands):
    """Return the status, the output and the errors of each command; one process runs them all."""
    done = run("-c", ANSWERS, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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


def test_a_core_install_is_at_most_eight_distributions_and_nothing_of_the_extras(core):
    # And tsr-gym itself.
    assert len(closure(REQUIREMENTS[""])) + 1 <= 8
    extras = {"torch", "transformers", "numba", "bs4", "jinja2", "matplotlib", "tyro", "rich"}
    assert extras & {path.name for path in core.iterdir()} == set()


def test_environments_snapshots_and_search_work(run_core):
    done = run_core("-c", WORK)
    assert (done.stdout, done.returncode) == ("all of it\n", 0), done.stderr


def test_without_its_libraries_the_command_says_how_to_install_them(run_core, tmp_path):
    assert "tsr COMMAND --help" in run_core("-m", "tsr_gym").stdout
    assert run_core("-m", "tsr_gym", "--version").returncode == 0
    done = run_core("-m", "tsr_gym", "play", "sokoban")
    assert done.returncode == 1
    assert done.stderr == (
        "tsr play: this needs the package 'tyro', which is not installed: pip install 'tsr-gym[cli]'\n"
    )


SHOP = """
import gymnasium
import tsr_gym
import tsr_gym.agents.cli.webshop
import tsr_gym_envs.serving
from starlette.testclient import TestClient
from tsr_gym_envs.webshop.site import shop_site
from tsr_gym_envs.webshop.trips import Trips

trips = Trips(gymnasium.make("tsr/WebShop-v0", max_turns=None))
with TestClient(shop_site(trips, host="127.0.0.1"), base_url="http://127.0.0.1") as visitor:
    print(visitor.get("/").status_code)
"""


def test_the_extra_serve_alone_runs_the_shop(serving, tmp_path):
    done = run_in(serving, tmp_path, "-c", SHOP)
    assert (done.stdout, done.returncode) == ("200\n", 0), done.stderr


def test_the_doctor_says_what_works_and_what_each_missing_extra_brings(run, tmp_path):
    # Not what setuptools leaves in the checkout.
    installed = (path for one in distributions(name="tsr-gym") for path in one.files or ())
    metadata = next(path for path in installed if path.name == "METADATA")
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / metadata.parent.name).symlink_to(metadata.locate().parent)
    code = (
        f"import sys; sys.path.append({str(tmp_path / 'known')!r}); from tsr_gym.agents.cli import main; sys.exit(main("
    )
    done = run("-c", f"{code}['doctor', '--json']))")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    extras = {one["name"]: one for one in found["extras"]}
    assert extras[""]["complete"]
    assert extras["cli"]["complete"]
    assert {"torch", "transformers"} <= set(extras["agents"]["lacking"])
    assert extras["agents"]["install"] == "pip install 'tsr-gym[agents]'"
    states = {one["what"]: one["state"] for one in found["self_test"]}
    assert states["tsr/Sokoban-v0"] == states["tsr/FrozenLake-v0"] == "works"
    assert states["tsr/WebShop-v0"] == states["tsr/RetrievalQA-v0"] == states["gpu"] == "missing"


def test_environments_are_listed_with_what_they_need_and_a_room_can_be_played(run):
    done = run("-m", "tsr_gym", "envs", "--json")
    assert done.returncode == 0, done.stderr
    needs = {env["id"]: env["needs"] for env in json.loads(done.stdout)["environments"]}
    assert needs["tsr/Sokoban-v0"] is None
    assert "pip install 'tsr-gym[envs]'" in needs["tsr/WebShop-v0"]
    for name in ("tsr/WebShop-v0", "tsr/RetrievalQA-v0"):
        code = f"import gymnasium, tsr_gym\ntry: gymnasium.make({name!r})\nexcept tsr_gym.MissingExtra as e: print(e)"
        assert "pip install 'tsr-gym[envs]'" in run("-c", code).stdout
    done = run("-m", "tsr_gym", "play", "sokoban", stdin="Up\nundo\nhint\nquit\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("return 0") == 2


def test_what_needs_an_extra_names_it_and_how_to_install_it(run, tmp_path):
    torch = [(words, "torch") for words in ("train sokoban", "eval default", "base-model sokoban --out model")]
    cases = [*torch, *((words, "matplotlib") for words in ("report runs/x", "calibrate sokoban --out x"))]
    told = answers(run, *[words.split() for words, _ in cases])
    for (words, package), answer in zip(cases, told, strict=True):
        missing = f"this needs the package {package!r}, which is not installed: pip install 'tsr-gym[agents]'"
        assert answer == [1, "", f"tsr {words.split()[0]}: {missing}\n"]
    assert list(tmp_path.iterdir()) == []
