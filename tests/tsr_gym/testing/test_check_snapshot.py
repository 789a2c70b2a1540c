"""check_snapshot and check_text_env find every fault, name it, and pass good environments."""

import copy
import random
import time
from collections import deque
from dataclasses import dataclass
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import (
    Autoreset,
    DelayObservation,
    FrameStackObservation,
    MaxAndSkipObservation,
    NormalizeObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    StickyAction,
    TimeAwareObservation,
    TimeLimit,
    TransformObservation,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import deep, run_python
from tests.tsr_gym.testing import broken, worlds
from tests.tsr_gym.testing.worlds import Board, Dice, Drift, Echo, Locked, Many, ReusesItsBuffer, Stated, Unseeded, Walk
from tsr_gym import CheckFailed, Limits
from tsr_gym.stack import env_support
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.testing.facts import fingerprint
from tsr_gym.testing.trial import build, recipe_of
from tsr_gym.wrappers import AnswerFormat, FrozenLakeScore, SokobanScore, TreeSearchWrapper

BROKEN = {
    "RollsElsewhere": ("global_random", "RollsElsewhere.transition"),
    "StartsAnywhere": ("global_random", "StartsAnywhere.initial"),
    "CountsEpisodes": ("same_seed", "CountsEpisodes.episodes (class attribute)"),
    "PaintsOver": ("aliasing", "PaintsOver.episode.state.cells"),
    "LendsItsBoard": ("handed_out", "LendsItsBoard"),
    "OneInfoForAll": ("aliasing", "OneInfoForAll"),
    "Whispers": ("hidden_generator", "closure variable secret"),
    "RollsTheModulesDice": ("hidden_generator", "module global DICE"),
    "RemembersTheGoal": ("hidden_history", "RemembersTheGoal._headline"),
    "LooksAtTheClock": ("wall_clock", "LooksAtTheClock.initial"),
    "forgotten_generator": ("replay", "BlursRewards._dice"),
    "SavesByHand": ("replay", "SavesByHand._stream"),
    "ListsASet": ("other_process", "the result of ListsASet.observe(state)"),
    "SeedsByHash": ("other_process", "the state of SeedsByHash"),
    "unknown_wrapper": (
        "unsupported",
        "CountsSteps is a wrapper that tsr_gym does not know, and it holds steps_so_far",
    ),
    "LeavesATrail": ("unsupported", "immutable state of LeavesATrail, got a list in Trail.visited"),
    "CountsMoves": ("replay", "CountsMoves.moves (0 then"),
    "ignored_field": ("replay", "SumsRewards._count"),
    "shared_list": ("clone", "KeepsALog.log"),
    "KeepsItsDice": ("noise", "KeepsItsDice restored with seeds 11 and 12"),
    "RestoresThePlace": ("methods", "RestoresThePlace.snapshot() or restore() is not exact: the counters of"),
    "CountsABonus": ("bytes", "CountsABonus restored to turn 0 from bytes, turn 1: `reward` differs"),
    "TakesAll": ("foreign", "TakesAll accepted a snapshot of other rules"),
    "ReusesABuffer": ("aliasing", "the observation that ReusesABuffer returned at turn 0 changed later"),
    "OpensNewDice": ("same_seed", "OpensNewDice after reset(seed=0) once more"),
    "SaysTheHour": ("wall_clock", "SaysTheHour.observe"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_environment_is_caught_and_its_culprit_named(name):
    check, culprit = BROKEN[name]
    with pytest.raises(CheckFailed) as caught:
        check_snapshot(vars(broken)[name](), factory=f"{broken.__name__}:{name}")
    assert caught.value.check == check
    assert culprit in str(caught.value)


def text_stack():
    return TimeLimit(RecordEpisodeStatistics(Walk()), 4)


def sticky_dice():
    return StickyAction(TimeLimit(Dice(), 6), 0.4, (1, 3))


def stacked_board():
    return FrameStackObservation(DelayObservation(Board(), 2), 3)


def skipping_board():
    return RecordEpisodeStatistics(TimeAwareObservation(TimeLimit(MaxAndSkipObservation(Board(), 3), 6)))


def normalised_board():
    return NormalizeReward(NormalizeObservation(Board()))


def endless_dice():
    return Autoreset(Dice(Limits(max_turns=4)))


def recorded_tree():
    return RecordEpisodeStatistics(TreeSearchWrapper(Board()))


STACKS = [
    Walk, Dice, Board, text_stack, sticky_dice, stacked_board, skipping_board, normalised_board, endless_dice,
    recorded_tree,
]  # fmt: skip


# Other processes take most of the time: at full size, all stacks are asked there.
IN_OTHER_PROCESSES = [make if make in (sticky_dice, recorded_tree) else deep(make) for make in STACKS]


@pytest.mark.parametrize("make", STACKS, ids=lambda make: make.__name__)
def test_snapshots_are_exact_through_gymnasiums_wrappers(make):
    check_snapshot(make(), factory=make, seeds=(0, 1), other_processes=False)


@pytest.mark.parametrize("make", IN_OTHER_PROCESSES, ids=lambda make: make.__name__)
def test_snapshots_through_gymnasiums_wrappers_are_exact_in_other_processes(make):
    check_snapshot(make(), factory=make, seeds=(0,))


@pytest.mark.parametrize("game", ["tsr/FrozenLake-v0", "tsr/Sokoban-v0"])
def test_snapshots_are_exact_through_the_stack_of_a_search(game):
    score = FrozenLakeScore if "Lake" in game else SokobanScore
    check_snapshot(TreeSearchWrapper(score(AnswerFormat(gym.make(game)))), seeds=(0,))


def test_environments_are_made_again_from_their_spec_or_a_factory_of_the_same_stack():
    env = StickyAction(gym.make("tsr/FrozenLake-v0", max_episode_steps=3), 0.5)
    check_snapshot(env, seeds=(0,))
    check_snapshot(gym.make("tsr/Sokoban-v0").unwrapped, seeds=(0,))
    with pytest.raises(CheckFailed, match=r"Walk has no spec.*pass factory=") as caught:
        check_snapshot(Walk())
    assert caught.value.check == "rebuild"
    with pytest.raises(
        CheckFailed, match="wanted Walk again, got TimeLimit < RecordEpisodeStatistics < Walk"
    ) as caught:
        check_snapshot(Walk(), factory=text_stack)
    assert caught.value.check == "rebuild"


def test_a_factory_that_other_processes_cannot_import_is_refused_unless_they_are_switched_off():
    for factory, message in ((lambda: Walk(), "other_processes=False"), (walk_at_home, "(?s)replayed.*only at home")):
        with pytest.raises(CheckFailed, match=message) as caught:
            check_snapshot(Walk(), factory=factory, seeds=(0,))
        assert caught.value.check == "other_process"


def walk_at_home():
    import __main__

    if "replay_child" in str(__main__.__spec__):
        raise RuntimeError("I work only at home")
    return Walk()


def test_causes_inside_a_stack_are_named():
    dice = np.random.default_rng(0)

    def rolls():
        return TransformObservation(Walk(), lambda text: text + str(dice.integers(9)), None)

    # RecordEpisodeStatistics belongs outside the search: inside, its seconds would become part of the tree.
    def timed():
        return TreeSearchWrapper(RecordEpisodeStatistics(Walk(Limits(max_turns=2))))

    with pytest.raises(CheckFailed, match=r"closure variable dice of .*<lambda>") as caught:
        check_snapshot(rolls(), factory=rolls)
    assert caught.value.check == "hidden_generator"
    with pytest.raises(CheckFailed, match="the state of TreeSearchWrapper differs"):
        check_snapshot(timed(), factory=timed, other_processes=False)


@pytest.mark.parametrize("make", [Walk, Drift])
def test_global_generators_and_clocks_are_as_before_a_check(make):
    def held():
        clocks = time.time, time.perf_counter, time.monotonic_ns
        return random.getstate(), np.random.get_state()[1].tobytes(), clocks  # noqa: NPY002

    before = held()
    check_snapshot(make(), factory=make, seeds=(0,), steps=3, other_processes=False)
    assert held() == before


def sticky_drift():
    return FrameStackObservation(StickyAction(TimeLimit(Drift(), 5), 0.4, (1, 3)), 2)


def counted_echo():
    return RecordEpisodeStatistics(TimeAwareObservation(TimeLimit(Echo(Stated()), 5)))


def delayed_lock():
    return DelayObservation(TimeLimit(Locked(), 6), 2)


WORLDS = {Drift: "deepcopy", Stated: "exact", Locked: "replay", Many: "deepcopy", ReusesItsBuffer: "deepcopy"}


WORLDS |= {sticky_drift: "deepcopy", counted_echo: "exact", delayed_lock: "replay"}


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
def test_an_environment_of_others_without_a_fault_passes(make):
    env = make()
    env.reset(seed=0)
    assert env_support(env).level == WORLDS[make]
    check_snapshot(env, factory=make, seeds=(0, 1), steps=8, other_processes=False)


@pytest.mark.parametrize("make", [Stated, Locked, Many], ids=lambda make: make.__name__)
def test_a_foreign_environment_plays_the_same_in_other_processes(make):
    check_snapshot(make(), factory=make, seeds=(2,), steps=5)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_environments_of_gymnasium_pass_by_their_spec(env_id):
    check_snapshot(gym.make(env_id), seeds=(0,), steps=6, other_processes=env_id == "FrozenLake-v1")


FAULTS = {
    "ForgetsItsSpeed": ("replay", "turn 1: the state of ForgetsItsSpeed differs", "ForgetsItsSpeed.velocity"),
    "LendsItsList": ("aliasing", "the snapshot of turn 0 changed", "LendsItsList"),
    "CopiesThatRollElsewhere": ("unsupported", "the global generator of numpy.random"),
    "SharesItsDice": ("hidden_generator", "SharesItsDice.dice (class attribute)"),
    "GrowsOld": ("same_seed", "`reward` differs", "GrowsOld.age"),
    "BringsItsDice": ("same_seed", "`reward` differs", "BringsItsDice.dice"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_named(name):
    make = vars(worlds)[name]
    check, *words = FAULTS[name]
    with pytest.raises(CheckFailed) as caught:
        check_snapshot(make(), factory=make, steps=8, seeds=(0, 1), other_processes=False)
    assert caught.value.check == check
    assert [word for word in words if word not in str(caught.value)] == []


def test_what_neither_copies_nor_repeats_itself_is_refused_with_both_reasons():
    env = gym.make(gym.envs.registration.EnvSpec("Unseeded-v0", entry_point=Unseeded))
    with pytest.raises(CheckFailed, match=r"Unseeded has no exact snapshots: .*lock.* does not repeat") as caught:
        check_snapshot(env)
    assert caught.value.check == "unsupported"
    check_snapshot(gym.make(gym.envs.registration.EnvSpec("Stated-v0", entry_point=Stated)), steps=3, seeds=(0,))

    def booleans():
        return TransformObservation(Drift(), lambda position: position > 0, gym.spaces.MultiBinary(2))

    check_snapshot(booleans(), factory=booleans, seeds=(0,), steps=3, other_processes=False)


def from_a_module_that_is_gone():
    """Return a function of a module that is not in sys.modules, as notebooks and plug-in loaders make them."""
    module = ModuleType("gone_away")
    module.Walk = Walk
    exec("def make():\n    return Walk()", vars(module))
    return module.make


@pytest.mark.parametrize("factory", [lambda: Walk(), from_a_module_that_is_gone()], ids=["lambda", "gone module"])
def test_a_function_that_no_other_process_finds_makes_environments_here(factory):
    named = recipe_of(Walk(), walk_at_home)
    assert named.order == {"factory": f"{__name__}:walk_at_home"}
    assert type(build(named.order)) is Walk
    recipe = recipe_of(Walk(), factory)
    assert recipe.order is None
    assert type(recipe.build()) is Walk
    check_snapshot(Walk(), factory=factory, seeds=(0,), other_processes=False)


@dataclass
class Box:
    content: object
    label: str = ""


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left, right):
        self.left, self.right = left, right


class ArrayOfAnotherLibrary:
    def __init__(self, numbers):
        self._numbers = numbers

    def __array__(self, dtype=None, copy=None):
        return np.array(self._numbers)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
ARRAYS = st.lists(st.integers(0, 255), min_size=1).map(lambda numbers: np.array(numbers, np.uint8))
VALUES = st.recursive(
    LEAVES | ARRAYS | st.frozensets(st.text()),
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner, inner), st.dictionaries(st.text(), inner), st.lists(inner).map(deque),
        st.builds(Box, inner, st.text()), st.builds(Slotted, inner, inner),
    ),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_a_copy_has_the_same_fingerprint(value):
    assert fingerprint(copy.deepcopy(value)) == fingerprint(value)


@given(VALUES, LEAVES, LEAVES)
def test_a_change_of_one_leaf_shows(value, left, right):
    same = repr(left) == repr(right)
    assert (fingerprint([value, Box(left)]) == fingerprint([value, Box(right)])) is same


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1, 2], [2, 1]), ([1], (1,)), (1, 1.0), (0.0, -0.0), (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros((2, 3)), np.zeros((3, 2))), (Box(1), Slotted(1, "")), ({"a": 1}, {"a": 1, "b": None}),
        (np.random.default_rng(1), np.random.default_rng(2)), (random.Random(1), random.Random(2)),
        (ArrayOfAnotherLibrary([1, 2]), ArrayOfAnotherLibrary([1, 3])), ({1, 2}, {1, 3}),
    ],
)  # fmt: skip
def test_different_values_have_different_fingerprints(left, right):
    assert fingerprint(left) != fingerprint(right)
    assert fingerprint(left) == fingerprint(copy.deepcopy(left))


def test_fingerprints_are_of_positions_cycles_and_ends_of_long_lists():
    rng = np.random.default_rng(5)
    before = fingerprint(Box(rng))
    number = rng.random()
    assert fingerprint(Box(rng)) != before
    again = np.random.default_rng(5)
    assert (fingerprint(Box(again)), again.random()) == (before, number)
    ring = [1]
    ring.append(ring)
    right = [2]
    right.append(right)
    assert fingerprint(ring) != fingerprint(right)
    long, changed = list(range(1000)), list(range(1000))
    changed[500] = -1
    assert fingerprint(long) != fingerprint(changed)
    assert fingerprint(long, max_items=100) == fingerprint(changed, max_items=100)
    changed[-1] = -1
    assert fingerprint(long, max_items=100) != fingerprint(changed, max_items=100)


def test_other_processes_agree():
    code = (
        "from tsr_gym.testing.facts import fingerprint\n"
        "print(fingerprint({'words': {'apple', 'pear', 'fig', 'plum'}, 'more': (1.5, None, object)}))"
    )
    assert len({run_python(code, hash_seed=seed) for seed in "01"}) == 1


BROKEN_GAMES = {
    "Insists": ("any_text", "Insists: the action"),
    "SaysNothing": ("action_is_valid", "SaysNothing"),
    "CountsMoves": ("observe", "CountsMoves: observe(state)"),
    "RemembersTheGoal": ("observe", "RemembersTheGoal: observe(state)"),
    "OneInfoForAll": ("fresh_info", "OneInfoForAll"),
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


@pytest.mark.parametrize("name", BROKEN_GAMES)
def test_a_broken_text_environment_is_caught_and_its_culprit_named(name):
    check, culprit = BROKEN_GAMES[name]
    with pytest.raises(CheckFailed) as caught:
        check_text_env(vars(broken)[name]())
    assert caught.value.check == check
    assert culprit in str(caught.value)


@pytest.mark.parametrize("limits", [Limits(6, 3, 10), Limits(), Limits(max_turns=1), Limits(max_actions=1)], ids=str)
def test_a_good_text_environment_passes_under_any_limits(limits):
    check_text_env(Walk(limits))


def test_text_environments_are_checked_with_their_wrappers():
    class Strict(gym.ActionWrapper):
        def action(self, action):
            return {"up": "Up"}[action]

    class OutOfItsSpace(Walk):
        def __init__(self):
            super().__init__()
            self.action_space = gym.spaces.Discrete(3)
            self.metadata, self.render_mode = {"render_modes": ["ansi", 3]}, "ansi"

    class TakesAnyText(Walk):
        def transition(self, state, action, rng):
            return Walk.transition(self, state, "Right", rng)

    check_text_env(TreeSearchWrapper(AnswerFormat(gym.make("tsr/Sokoban-v0"))))
    for env, check, message in (
        (Strict(gym.make("tsr/Sokoban-v0")), "any_text", "raised KeyError"),
        (Board(), "text_env", r"wanted a tsr_gym\.TextEnv, got a Board"),
        (OutOfItsSpace(), "gymnasium", "OutOfItsSpace: Gymnasium's check_env"),
        (TakesAnyText(), "action_is_valid", ""),
    ):
        with pytest.raises(CheckFailed, match=message) as caught:
            check_text_env(env)
        assert caught.value.check == check
    check_text_env(TakesAnyText(), junk=("", "  ", "||"))
