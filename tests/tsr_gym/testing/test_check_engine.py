"""check_engine: an engine without a fault passes, and each fault fails the rule for it."""

import pytest

from tests.tsr_gym.testing.toy_engine import FAULTS, STOP, Fixed, Learner, ToyEngine
from tsr_gym import CheckFailed, ConfigError
from tsr_gym.testing import check_engine
from tsr_gym.testing.check_engine import HELD, RULES

pytest_plugins = "pytester"


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


def test_faults_are_planted_for_every_rule():
    assert {rule for rule, _ in FAULTS.values()} == {*RULES, "completions"}


def test_both_numbers_stand_in_the_message():
    with pytest.raises(CheckFailed, match=r"log-probability -\d\.\d+ and the learner's is -\d\.\d+: .*other weights"):
        check(FAULTS["ReportsWithoutTheTemperature"][1]())


def test_a_looser_tolerance_lets_small_differences_pass():
    learner = Learner()

    def rounded(prompt, answer):
        return [round(float(number), 3) for number in learner(prompt, answer)]

    with pytest.raises(CheckFailed, match="logprobs"):
        check_engine(ToyEngine(), reference=rounded)
    assert check_engine(ToyEngine(), reference=rounded, tolerance=1e-3)["logprobs"] == HELD


def test_an_update_is_not_looked_at_where_none_is_given():
    assert check(ToyEngine(), update=None)["weight update"] == "no update was given"


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
