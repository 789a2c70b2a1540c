"""Registered names, and the spaces of texts."""

import copy
import pickle

import cloudpickle
import gymnasium as gym
import pytest
from gymnasium.spaces import flatten, flatten_space, unflatten
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.utils import create_zero_array
from hypothesis import given
from hypothesis import strategies as st

import tsr_gym
from tests.conftest import deep, run_python
from tsr_gym import FreeText
from tsr_gym.optional import load
from tsr_gym.registration import (
    ENTRY_POINTS,
    ENV_CLASSES,
    OPTIONAL_ENTRY_POINTS,
    OPTIONAL_ENV_CLASSES,
    SHORT_NAMES,
    VECTOR_ENTRY_POINTS,
    env_class,
    env_id,
    register_envs,
)
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.wrappers import AnswerFormat, ScoreWrapper, StorableInfo, TreeSearchWrapper

FORMS = [(name, {}) for name in ENTRY_POINTS] + [(name, {"action_type": "discrete"}) for name in VECTOR_ENTRY_POINTS]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_an_entry_of_info_has_one_type_and_is_always_there(name, form):
    # An optimal player next to one whose turns mean nothing: Gymnasium puts both infos into one array.
    envs = gym.make_vec(name, num_envs=2, vectorization_mode="sync", **form)
    clever = StorableInfo(gym.make(name, **form))
    for seed in range(6):
        envs.reset(seed=seed)
        _, first = clever.reset(seed=seed)
        for _ in range(8):
            base = clever.unwrapped
            turn = 3 if form else base.optimal_turn(base.state, None, None) or "nothing"
            _, _, terminated, truncated, info = clever.step(turn)
            assert {key: type(value) for key, value in info.items()} == {key: type(first[key]) for key in first}
            *_, infos = envs.step([turn, 0 if form else "nothing"])
            assert all(infos[f"_{key}"].all() for key in info)
            if terminated or truncated:
                break


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_id_has_an_entry_point_and_no_time_limit(name):
    spec = gym.spec(name)
    assert callable(load(ENTRY_POINTS[name]))
    assert spec.entry_point == ENTRY_POINTS[name]
    # Turn limits live in the environment's state, so a TimeLimit would count a second time.
    assert spec.max_episode_steps is None


@pytest.mark.parametrize("name", VECTOR_ENTRY_POINTS)
def test_a_vector_entry_point_makes_batches(name):
    assert gym.spec(name).vector_entry_point == VECTOR_ENTRY_POINTS[name]
    assert gym.make_vec(name, num_envs=2).reset(seed=1)[0].shape[0] == 2


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_saved_spec_and_an_id_make_the_environment_in_a_process_that_only_named_the_package(name):
    env = gym.make(name, max_turns=3)
    code = (
        "import gymnasium as gym; from gymnasium.envs.registration import EnvSpec; "
        f"env = gym.make(EnvSpec.from_json({env.spec.to_json()!r})); "
        "print(repr(env.reset(seed=7)[0]), env.unwrapped.limits.max_turns); "
        f"env = gym.make('tsr_gym:{name}'); print(env.reset()[0] in env.observation_space)"
    )
    assert run_python(code).strip() == f"{env.reset(seed=7)[0]!r} {env.unwrapped.limits.max_turns}\nTrue"


@pytest.mark.parametrize("name", {**ENV_CLASSES, **OPTIONAL_ENV_CLASSES})
def test_the_class_of_a_world_states_its_guide_and_what_people_read(name):
    cls = env_class(name)
    assert cls.__name__ == {**ENV_CLASSES, **OPTIONAL_ENV_CLASSES}[name].partition(":")[2]
    assert cls.guide is None or issubclass(load(cls.guide.scorer), ScoreWrapper)
    settings = dict.fromkeys([*cls.model_forms, "max_turns"], 9)
    assert cls.people_settings(settings) == {"max_turns": 9}


def test_what_is_no_text_or_no_setting_of_a_space_of_texts_is_refused():
    for other in (None, 3, b"text", ["text"], ("t",)):
        assert other not in FreeText(20)
    for arguments in ({"mask": 1}, {"probability": 1}):
        with pytest.raises(ValueError, match="no masks or probabilities"):
            FreeText(5).sample(**arguments)
    for arguments in ({"max_length": 0}, {"max_length": 5, "max_words": 0}):
        with pytest.raises(ValueError, match=r"wanted max_(length|words) as a whole number >= 1"):
            FreeText(**arguments)


LEVEL = "#######\n#@ $ .#\n#  $ .#\n#######"
SETTINGS = {
    "tsr/FrozenLake-v0": [
        {"preset": "tsr-code"}, {"obs_type": "coord", "is_slippery": False}, {"obs_type": "compact", "noise": "shared"},
        {"generator": "gymnasium", "size": 5, "max_turns": None, "max_actions_per_turn": 1},
        {"desc": ["SFS", "FHF", "FGG"], "success_rate": 0.7, "split": "test"},
        {"map_name": "8x8", "max_actions": 25, "max_actions_per_turn": 2}, {"max_actions_per_turn": None},
    ],
    "tsr/Sokoban-v0": [
        {"preset": "tsr-code"},
        {"obs_type": "coord", "dim": (7, 6), "num_boxes": 2},
        {"obs_type": "compact", "split": "valid"},
        {"level": LEVEL, "max_turns": None, "max_actions": None},
        {"max_turns": 1, "reward_box": 0.0},
    ],
}  # fmt: skip
CASES = [(name, settings) for name in ENTRY_POINTS for settings in [{}, *SETTINGS.get(name, [])]]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_a_registered_environment_keeps_the_contract_of_text_environments(name, settings):
    check_text_env(gym.make(name, **settings))


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_snapshots_of_a_registered_environment_are_exact(name, settings):
    # Other processes are asked below, once per environment: they cost most of the time.
    check_snapshot(gym.make(name, **settings), other_processes=False)


@pytest.mark.parametrize(("name", "settings"), [deep(*case) if case[1] else case for case in CASES], ids=str)
def test_a_registered_environment_plays_the_same_in_other_processes(name, settings):
    check_snapshot(gym.make(name, **settings), seeds=(3,))


def test_names_lead_to_registered_ids_others_have_no_class_and_registering_twice_is_harmless(recwarn):
    assert all(env_id(short.upper()) in gym.registry for short in SHORT_NAMES)
    assert [env_id(name) for name in ("CartPole-v1", "tsr/Sokoban-v0")] == ["CartPole-v1", "tsr/Sokoban-v0"]
    assert env_class("CartPole-v1") is None
    before = dict(gym.registry)
    register_envs()
    assert gym.registry == before
    assert not recwarn.list


def play_on(env):
    snap = tsr_gym.snapshot(env)
    action = next(iter(env.unwrapped.legal_actions(env.unwrapped.state)))
    return snap.digest, *env.step(action)[:4], env.reset(seed=7)[0]


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_pickle_continues_the_episode_here_and_in_another_process(name, tmp_path):
    env = gym.make(name)
    env.reset(seed=3)
    env.step(env.unwrapped.legal_actions(env.unwrapped.state)[0])
    data = pickle.dumps(env)
    twins = [pickle.loads(data), cloudpickle.loads(cloudpickle.dumps(env)), copy.deepcopy(env)]
    (tmp_path / "env").write_bytes(data)
    code = f"import pickle; env = pickle.load(open({str(tmp_path / 'env')!r}, 'rb')); "
    code += "from tests.tsr_gym.test_registration import play_on; print(play_on(env))"
    other = run_python(code).strip()
    wanted = play_on(env)
    assert [play_on(twin) for twin in twins] == [wanted] * 3
    assert other == repr(wanted)


def test_all_of_tsr_is_registered_with_gymnasium():
    assert {name for name in gym.registry if name.startswith("tsr/")} == {*ENTRY_POINTS, *OPTIONAL_ENTRY_POINTS}
    assert tsr_gym.registration.ENTRY_POINTS is ENTRY_POINTS


GAME = "tsr/FrozenLake-v0"


def make():
    return gym.make(GAME)


@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_every_short_enough_text_is_inside(text):
    assert (text in FreeText(20)) == (len(text) <= 20)


@pytest.mark.parametrize("space", [FreeText(9), FreeText(30, words=("Up", "Left"), max_words=4)], ids=str)
def test_samples_lie_inside_and_depend_on_the_seed(space):
    space.seed(5)
    first = [space.sample() for _ in range(200)]
    space.seed(5)
    assert [space.sample() for _ in range(200)] == first
    assert all(sample in space for sample in first)
    assert len(set(first)) > 10
    space = FreeText(100, words=("Up", "Down"), separator=" + ", max_words=2, seed=1)
    assert {space.sample() for _ in range(100)} == {"Up", "Down", "Up + Up", "Up + Down", "Down + Up", "Down + Down"}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_registered_environment_can_be_searched_and_its_infos_have_the_same_keys(name):
    check_snapshot(TreeSearchWrapper(AnswerFormat(gym.make(name))), seeds=(5,), other_processes=False)
    env = gym.make(name)
    keys = {tuple(sorted(env.reset(seed=1)[1]))}
    for turn in ("junk", "", env.unwrapped.legal_actions(env.unwrapped.state)[0]):
        keys.add(tuple(sorted(env.step(turn)[4])))
    assert len(keys) == 1


def test_spaces_compare_by_what_they_hold_and_pad_with_empty_text():
    assert FreeText(5) == FreeText(5, seed=3)
    assert FreeText(5) != FreeText(6)
    assert FreeText(5) != FreeText(5, words=("a",))
    assert FreeText(5) != gym.spaces.Text(5)
    assert copy.deepcopy(FreeText(5)) == pickle.loads(pickle.dumps(FreeText(5)))
    assert create_zero_array(FreeText(5)) == ""


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_a_flattened_text_is_read_back(text):
    space = FreeText(20)
    flat = flatten(space, text)
    assert flat in flatten_space(space)
    assert unflatten(space, flat) == text
    assert isinstance(space, gym.spaces.Text)
    assert space.is_np_flattenable


class Reader(gym.Env):
    """Its observations are difficult texts, one after the other."""

    observation_space = FreeText(400_000)
    action_space = gym.spaces.Discrete(2)
    TEXTS = ("", "grün 漢 🙂", "\ud800 half", "line\nline\x00", "a" * 400_000, "short again", "漢" * 400_000)

    def reset(self, *, seed=None, options=None):
        self.number = 0
        return self.TEXTS[0], {}

    def step(self, action):
        self.number += 1
        return self.TEXTS[self.number], 0.0, False, False, {}


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_texts_in_shared_memory_are_those_that_were_shown_and_stay_as_they_were(context):
    envs = AsyncVectorEnv([Reader, Reader], context=context)
    try:
        seen = [envs.reset()[0]] + [envs.step([0, 0])[0] for _ in Reader.TEXTS[1:6]]
        assert seen == [(text, text) for text in Reader.TEXTS[:6]]
        with pytest.raises(ValueError, match=r"at most 1048576 bytes .*vector_kwargs=\{'shared_memory': False\}"):
            envs.step([0, 0])
    finally:
        envs.close(terminate=True)


def test_texts_in_shared_memory_can_be_looked_at_without_a_copy():
    envs = AsyncVectorEnv([make, make], copy=False)
    try:
        live, _ = envs.reset(seed=3)
        before = tuple(live)
        assert (live[1], live[-1], live[:1], len(live)) == (before[1], before[1], before[:1], 2)
        envs.step(("Down", "Down"))
        assert tuple(live) != before
    finally:
        envs.close()


def play(envs):
    observations = [envs.reset(seed=3)[0]]
    for turn in (("Left", "Down || Right"), ("Up || Up", "junk"), ("Right", "Down")):
        observation, reward, terminated, truncated, info = envs.step(turn)
        observations.append(
            (observation, reward.tolist(), terminated.tolist(), truncated.tolist(), info["success"].tolist())
        )
    return observations


@pytest.mark.parametrize("shared_memory", [True, False])
def test_vector_environments_show_what_the_single_ones_show(shared_memory):
    sync, parallel = SyncVectorEnv([make, make]), AsyncVectorEnv([make, make], shared_memory=shared_memory)
    try:
        assert play(sync) == play(parallel)
        singles = [make(), make()]
        wanted = tuple(env.reset(seed=3 + number)[0] for number, env in enumerate(singles))
        assert sync.reset(seed=3)[0] == wanted
        assert parallel.reset(seed=3)[0] == wanted
        wanted = tuple(env.step("Down")[0] for env in singles)
        assert sync.step(("Down", "Down"))[0] == wanted
        assert parallel.step(("Down", "Down"))[0] == wanted
    finally:
        sync.close()
        parallel.close()
