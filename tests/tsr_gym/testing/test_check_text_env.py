"""check_text_env finds every fault that it promises to find, names it, and passes good environments."""

import gymnasium as gym
import pytest

from tests.tsr_gym.testing import broken
from tests.tsr_gym.testing.worlds import Board, Walk
from tsr_gym import CheckFailed, Limits
from tsr_gym.testing import check_text_env
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper

BROKEN = {
    "Insists": ("any_text", "Insists: the action"),
    "SaysNothing": ("action_is_valid", "SaysNothing"),
    "CountsMoves": ("observe", "CountsMoves: observe(state)"),
    "RemembersTheGoal": ("observe", "RemembersTheGoal: observe(state)"),
    "OneInfoForAll": ("fresh_info", "OneInfoForAll"),
    "MovesAPawn": ("immutable_state", "broken.Pawn"),
    "LeavesATrail": ("immutable_state", "LeavesATrail: state.visited is a list"),
    "CountsEpisodes": ("same_seed", "CountsEpisodes: after reset(seed=0) once more"),
    "RollsElsewhere": ("same_seed", "RollsElsewhere: after reset(seed=0) once more, `reward` differs"),
    "KeyedByTurn": ("state_key", "KeyedByTurn: equal states have other keys later"),
    "OneKeyForAll": ("state_key", "OneKeyForAll: two states have the same key"),
    "StopsLate": ("limits", "StopsLate: turn 6"),
    "AlmostTrue": ("info", "AlmostTrue: info['success'] of reset() is 0"),
    "PromisesToFly": ("legal_actions", "PromisesToFly: legal_actions(state) lists 'Fly'"),
    "RecommendsTooMuch": ("optimal_turn", "RecommendsTooMuch: optimal_turn() returned"),
    "TeachesToFly": ("teaching", "TeachesToFly: a player of teaching() returned 'Fly', which is not a turn here"),
    "TakesTheTurn": ("teaching", "TakesTheTurn: a player of teaching() changed the episode"),
    "UpsideDown": ("success_bars", "UpsideDown: success_bars(state) returned (0.7, 0.2)"),
    "NeverStops": ("episode", "NeverStops: step() after the end of an episode was accepted"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_text_environment_is_caught_and_its_culprit_named(name):
    check, culprit = BROKEN[name]
    with pytest.raises(CheckFailed) as caught:
        check_text_env(vars(broken)[name]())
    assert caught.value.check == check
    assert culprit in str(caught.value)


@pytest.mark.parametrize("limits", [Limits(6, 3, 10), Limits(), Limits(max_turns=1), Limits(max_actions=1)], ids=str)
def test_a_good_text_environment_passes_under_any_limits(limits):
    check_text_env(Walk(limits))


def test_a_wrapped_text_environment_is_checked_with_its_wrappers():
    check_text_env(TreeSearchWrapper(AnswerFormat(gym.make("tsr/Sokoban-v0"))))


def test_a_wrapper_that_raises_on_junk_is_caught():
    class Strict(gym.ActionWrapper):
        def action(self, action):
            return {"up": "Up"}[action]

    with pytest.raises(CheckFailed, match="raised KeyError") as caught:
        check_text_env(Strict(gym.make("tsr/Sokoban-v0")))
    assert caught.value.check == "any_text"


def test_an_array_environment_is_no_text_environment():
    with pytest.raises(CheckFailed, match=r"wanted a tsr_gym\.TextEnv, got a Board") as caught:
        check_text_env(Board())
    assert caught.value.check == "text_env"


def test_gymnasiums_own_faults_are_passed_on():
    class OutOfItsSpace(Walk):
        def __init__(self):
            super().__init__()
            self.action_space = gym.spaces.Discrete(3)
            self.metadata = {"render_modes": ["ansi", 3]}
            self.render_mode = "ansi"

    with pytest.raises(CheckFailed, match="OutOfItsSpace: Gymnasium's check_env") as caught:
        check_text_env(OutOfItsSpace())
    assert caught.value.check == "gymnasium"


def test_where_any_text_is_an_action_the_caller_passes_junk():
    class Echo(Walk):
        actions = ()

        def transition(self, state, action, rng):
            return super().transition(state, "Right", rng)

    Echo.actions = Walk.actions
    with pytest.raises(CheckFailed) as caught:
        check_text_env(Echo())
    assert caught.value.check == "action_is_valid"
    check_text_env(Echo(), junk=("", "  ", "||"))
