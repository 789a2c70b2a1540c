"""check_engine, and the plug-in for pytest that runs the checks."""

import gymnasium as gym
import pytest

# Runs inside this process remove their imports at the end, and numpy must not be imported twice.
import tsr_gym.testing  # noqa: F401
from tests.conftest import run_python
from tests.tsr_gym.testing.toy_engine import FAULTS, STOP, Fixed, Learner, ToyEngine
from tsr_gym import CheckFailed, ConfigError
from tsr_gym.testing import check_engine
from tsr_gym.testing.check_engine import HELD, RULES

gym.make("tsr/FrozenLake-v0")

pytest_plugins = "pytester"

WALK = """
import gymnasium as gym
import numpy as np


class Walk(gym.Env):
    observation_space = gym.spaces.Box(-99, 99, (1,), np.int64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(5))
        return np.array([self.place]), {}

    def step(self, action):
        self.place += 2 * int(action) - 1
        return np.array([self.place]), 0.0, self.place > 9, False, {}

    def env_state(self):
        return self.place

    def set_env_state(self, state):
        self.place = state


class Bonus(Walk):
    steps = 0

    def step(self, action):
        self.steps += 1
        observation, *_, info = super().step(action)
        return observation, float(self.steps), False, False, info


gym.register("Garden/Walk-v0", Walk)
gym.register("Garden/Bonus-v0", Bonus)
"""


@pytest.fixture
def garden(pytester, monkeypatch):
    """A project with a good environment, a broken one, and one test; its runs load only this plug-in."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.syspathinsert()
    pytester.makepyfile(garden=WALK)
    pytester.makepyfile(test_own="def test_own():\n    pass\n")
    return pytester


def run(garden, *args):
    return garden.runpytest_inprocess("-p", "tsr_gym.testing.pytest_plugin", *args)


def test_every_target_becomes_one_test_with_its_name(garden):
    done = run(garden, "-v")
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*check_snapshot*")
    done = run(garden, "-v", "--check-snapshot=garden:Garden/Walk-v0", "--check-snapshot", "tsr/FrozenLake-v0")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(
        ["check_snapshot::garden:Garden/Walk-v0 PASSED*", "check_snapshot::tsr/FrozenLake-v0 PASSED*"]
    )
    done = run(garden, "--check-snapshot=garden:Walk", "--check-snapshot-one-process")
    done.assert_outcomes(passed=2)
    garden.makeini("[pytest]\ncheck_snapshot = garden:Walk\n")
    run(garden, "--check-snapshot=garden:Walk", "--check-snapshot-one-process").assert_outcomes(passed=2)
    args = "--check-snapshot=garden:Walk", "--check-snapshot=tsr/FrozenLake-v0", "--check-snapshot-one-process"
    run(garden, *args, "-k", "check_snapshot and Walk").assert_outcomes(passed=1, deselected=2)


def test_failures_are_reported_without_a_traceback_and_unknown_ids_in_gymnasiums_words(garden):
    done = run(garden, "--check-snapshot=garden:Bonus", "--check-snapshot-one-process")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*check_snapshot::garden:Bonus*",
            "garden:Bonus: *same_seed* Bonus after reset(seed=0) once more, turn 1: `reward` differs: *Bonus.steps (*",
        ]
    )
    done.stdout.no_fnmatch_line("*def check_snapshot*")
    done = run(garden, "--check-snapshot=Gardne-v0")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*NameNotFound: Environment `Gardne` doesn't exist*"])


def test_the_ini_file_names_targets_for_runs_of_whole_folders(garden):
    garden.makeini("[pytest]\ncheck_snapshot =\n    tsr/FrozenLake-v0\n    garden:Walk\n")
    run(garden, "--check-snapshot-one-process").assert_outcomes(passed=3)
    run(garden, "--check-snapshot-one-process", ".").assert_outcomes(passed=3)
    run(garden, "test_own.py").assert_outcomes(passed=1)
    run(garden, "test_own.py::test_own").assert_outcomes(passed=1)
    run(garden, "test_own.py", "--check-snapshot=garden:Walk").assert_outcomes(passed=2)


def test_the_number_of_steps_can_be_chosen(garden):
    garden.makepyfile(
        late="""
        from garden import Walk

        class Late(Walk):
            steps = 0

            def step(self, action):
                self.steps += 1
                observation, _, *rest = super().step(action)
                return observation, float(self.steps > 40), *rest
        """
    )
    args = "--check-snapshot=late:Late", "--check-snapshot-one-process"
    run(garden, *args, "--check-snapshot-steps=100").assert_outcomes(passed=1, failed=1)
    run(garden, *args, "--check-snapshot-steps=1").assert_outcomes(passed=2)


def test_the_fixture_checks_inside_a_test_and_shows_that_tests_line(garden):
    garden.makepyfile(
        test_own="""
        import garden

        def test_walk(check_snapshot):
            check_snapshot(garden.Walk(), factory=garden.Walk, steps=4, seeds=(0,), other_processes=False)

        def test_bonus(check_snapshot):
            check_snapshot(garden.Bonus(), factory=garden.Bonus, other_processes=False)
        """
    )
    done = run(garden)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["> * check_snapshot(garden.Bonus(), factory=garden.Bonus, other_processes=False)"])
    done.stdout.fnmatch_lines(["E *CheckFailed: *`reward` differs*"])
    done.stdout.no_fnmatch_line("*for rule in RULES*")


def test_a_check_runs_in_the_workers_of_xdist_too(garden):
    garden.makeini("[pytest]\ncheck_snapshot = garden:Walk\n")
    args = "-p", "xdist", "-n", "1", "--check-snapshot-one-process", "--check-snapshot=garden:Bonus"
    run(garden, *args).assert_outcomes(passed=2, failed=1)


def test_loading_the_plug_in_imports_nothing_that_the_package_does_not():
    code = (
        "import sys, pytest, tsr_gym.testing; before = set(sys.modules)\n"
        "import tsr_gym.testing.pytest_plugin; print(sorted(set(sys.modules) - before))"
    )
    assert run_python(code).strip() == "['tsr_gym.testing.pytest_plugin']"


def check(engine, **settings):
    learner = Learner()
    return check_engine(engine, **{"reference": learner, "update": learner.update, "stop_ids": [STOP], **settings})


def test_an_engine_without_a_fault_passes_every_rule():
    outcomes = check(ToyEngine())
    assert outcomes.pop("unsupported") == "the engine offers everything"
    assert outcomes == dict.fromkeys([*RULES][:-1], HELD)


def test_an_engine_with_fewer_capabilities_gets_the_reasons_of_skipped_rules():
    outcomes = check_engine(Fixed())
    assert {name for name, how in outcomes.items() if how == HELD} == {
        *("contract", "counts", "length", "weight version", "unsupported"),
    }
    assert outcomes["logprobs"] == "the engine has no log-probabilities"
    assert outcomes["weight update"] == "the engine's weights cannot be changed"
    assert outcomes["stop tokens"] == "no stop_ids were given"


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_by_the_rule_that_is_about_it(name):
    rule, engine_class = FAULTS[name]
    with pytest.raises(CheckFailed) as caught:
        check(engine_class())
    assert caught.value.check == rule


def test_faults_are_planted_for_every_rule_and_reported_with_both_numbers():
    assert {rule for rule, _ in FAULTS.values()} == {*RULES, "completions"}
    with pytest.raises(CheckFailed, match=r"log-probability -\d\.\d+ and the learner's is -\d\.\d+: .*other weights"):
        check(FAULTS["ReportsWithoutTheTemperature"][1]())
    assert check(ToyEngine(), update=None)["weight update"] == "no update was given"


def test_a_looser_tolerance_lets_small_differences_pass():
    learner = Learner()

    def rounded(prompt, answer):
        return [round(float(number), 3) for number in learner(prompt, answer)]

    with pytest.raises(CheckFailed, match="logprobs"):
        check_engine(ToyEngine(), reference=rounded)
    assert check_engine(ToyEngine(), reference=rounded, tolerance=1e-3)["logprobs"] == HELD


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reference": None}, "wanted a reference"),
        ({"prompts": [(1, 2)]}, "at least two prompts"),
        ({"prompts": [(1, 2), ()]}, "none empty"),
    ],
    ids=str,
)
def test_missing_arguments_of_the_check_are_reported(settings, message):
    with pytest.raises(ConfigError, match=message):
        check(ToyEngine(), **settings)


def test_a_third_partys_engine_is_checked_through_one_fixture(check_engine):
    assert check_engine(Fixed())["counts"] == HELD


def test_a_failure_through_the_fixture_shows_the_tests_own_line(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        "from tests.tsr_gym.testing.toy_engine import IgnoresSeeds, Learner\n\n"
        "def test_my_engine(check_engine):\n    check_engine(IgnoresSeeds(), reference=Learner())\n"
    )
    done = pytester.runpytest_inprocess("-p", "tsr_gym.testing.pytest_plugin")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*check_engine(IgnoresSeeds()*", "*[[]seeds[]] 8 distinct seeds gave the same sample*"])
    done.stdout.no_fnmatch_line("*def seeds_decide*")
