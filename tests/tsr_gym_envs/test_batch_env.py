"""Batches against Gymnasium's vector environment over single environments, and Gymnasium's vector wrappers."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector

import tsr_gym  # noqa: F401
from tsr_gym import ConfigError, EpisodeOver, Snapshot, SnapshotError

SOKOBAN, LAKE = "tsr/Sokoban-v0", "tsr/FrozenLake-v0"
LEVEL = "#######\n#@$ . #\n#  $ .#\n#######"
SHORT = "######\n#@$. #\n######"
CASES = [
    (SOKOBAN, {"max_actions": 9}),
    (SOKOBAN, {"num_levels": 5, "max_actions": 12, "shape": (7, 8), "reward_box": 0.3}),
    (SOKOBAN, {"level": LEVEL, "obs_type": "onehot"}),
    (SOKOBAN, {"generator": "ragen", "split": "train", "max_actions": 8, "obs_type": "rgb"}),
    (SOKOBAN, {"level": SHORT, "obs_type": "grid_coord", "max_actions": None}),
    (SOKOBAN, {"dim": (5, 7), "num_boxes": 2, "obs_type": "compact", "max_actions": 5}),
    (LAKE, {"max_actions": 9}),
    (LAKE, {"num_levels": 7, "success_rate": 0.8, "reward_schedule": (2, -1, -0.1)}),
    (LAKE, {"map_name": "4x4", "obs_type": "discrete"}),
    (LAKE, {"desc": ["SFS", "FHF", "FGG"], "obs_type": "coord", "is_slippery": False}),
    (LAKE, {"noise": "shared", "obs_type": "onehot", "split": "valid"}),
    (LAKE, {"map_name": "8x8", "success_rate": 1.0, "obs_type": "rgb", "max_actions": None}),
]
MODES = list(AutoresetMode)


def batch(name, num_envs=3, **settings):
    return gym.make_vec(name, num_envs=num_envs, **settings)


def one_by_one(name, num_envs, autoreset_mode, settings):
    single = {"action_type": "discrete", **settings}
    envs = [lambda: gym.make(name, disable_env_checker=True, **single) for _ in range(num_envs)]
    return SyncVectorEnv(envs, autoreset_mode=autoreset_mode)


def same(mine, other, where=""):
    """Compare observations, arrays and infos, deeply."""
    if isinstance(mine, dict):
        assert set(mine) == set(other), where
        for key in mine:
            same(mine[key], other[key], f"{where}[{key!r}]")
    elif isinstance(mine, tuple) or (isinstance(mine, np.ndarray) and mine.dtype == object):
        assert len(mine) == len(other), where
        for index, (left, right) in enumerate(zip(mine, other, strict=True)):
            same(left, right, f"{where}[{index}]")
    else:
        assert np.asarray(mine).dtype == np.asarray(other).dtype, where
        assert np.array_equal(mine, other), where


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_a_batch_is_as_many_single_environments(name, settings, mode):
    ours, theirs = batch(name, autoreset_mode=mode, **settings), one_by_one(name, 3, mode, settings)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    rng = np.random.default_rng(4)
    same(theirs.reset(seed=11), ours.reset(seed=11))
    keys = set(ours.reset(seed=11)[1])
    for step in range(60):
        actions = rng.integers(4, size=3)
        result = ours.step(actions)
        same(theirs.step(actions), result, f"step {step}")
        assert result[0] in ours.observation_space
        assert set(result[4]) - {"final_obs", "_final_obs", "final_info", "_final_info"} == keys
        over = result[2] | result[3]
        if mode is AutoresetMode.DISABLED and over.any():
            same(theirs.reset(options={"reset_mask": over}), ours.reset(options={"reset_mask": over}))
    same(theirs.reset(), ours.reset())
    same(theirs.reset(seed=[5, None, 5]), ours.reset(seed=[5, None, 5]))


@pytest.mark.parametrize(("name", "settings"), [CASES[1], CASES[7]], ids=str)
def test_results_do_not_depend_on_how_many_there_are(name, settings):
    many, few = batch(name, 40, **settings), batch(name, 2, **settings)
    many.reset(seed=100)
    few.reset(seed=[107, 133])
    actions = np.random.default_rng(0).integers(4, size=(80, 40))
    for row in actions:
        left, right = many.step(row), few.step(row[[7, 33]])
        for mine, theirs in zip(left[:4], right[:4], strict=True):
            assert np.array_equal(mine[[7, 33]], theirs)


@pytest.mark.parametrize("name", [SOKOBAN, LAKE])
def test_the_options_of_a_reset_are_those_of_the_single_environment(name):
    options = {"level": SHORT} if name == SOKOBAN else {"desc": ["SFFF", "FHFH", "FFFH", "HFFG"]}
    env = batch(name, autoreset_mode="Disabled", **({"shape": (6, 6)} if name == SOKOBAN else {}))
    first, _ = env.reset(seed=3)
    mask = np.array([False, True, False])
    given, infos = env.reset(options={**options, "reset_mask": mask})
    assert infos["_success"].tolist() == mask.tolist()
    assert np.array_equal(given[[0, 2]], first[[0, 2]])
    single = gym.make(name, obs_type="array", **({"shape": (6, 6)} if name == SOKOBAN else {}))
    assert np.array_equal(single.reset(seed=1, options=options)[0], given[1])
    numbered, _ = env.reset(options={"number": 5})
    assert np.array_equal(numbered[0] % 3, single.reset(seed=1, options={"number": 5})[0] % 3)
    with pytest.raises(ConfigError, match="wanted reset options among"):
        env.reset(options={"colour": "blue"})


def play(env, actions):
    return [env.step(row)[:4] for row in actions]


def equal_steps(first, other):
    return all(
        np.array_equal(mine, theirs)
        for a, b in zip(first, other, strict=True)
        for mine, theirs in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize(("name", "settings"), [CASES[0], CASES[1], CASES[4], CASES[6], CASES[7], CASES[8]], ids=str)
def test_a_restored_batch_continues_as_before(name, settings, mode):
    env = batch(name, 5, autoreset_mode=mode, **settings)
    actions = np.random.default_rng(1).integers(4, size=(40, 5))
    env.reset(seed=2)
    play(env, actions[:15])
    before = env.snapshot()
    seen = env.observe()
    expected = play(env, actions[15:])
    env.restore(before)
    assert all(map(np.array_equal, env.observe(), seen))
    assert equal_steps(play(env, actions[15:]), expected)
    # Bytes, in another batch, that was never reset.
    other = batch(name, 5, autoreset_mode=mode, **settings)
    other.restore(Snapshot.from_bytes(before.to_bytes()))
    assert other.snapshot() == before
    assert equal_steps(play(other, actions[15:]), expected)
    # Some environments into others.
    other.restore(env.snapshot([4, 0]), [1, 3])
    assert other.snapshot([1, 3]) == env.snapshot([4, 0])


@pytest.mark.parametrize(("name", "settings"), [CASES[1], CASES[6]], ids=str)
@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_are_independent(name, settings, copied):
    env = batch(name, 4, **settings)
    env.reset(seed=3)
    actions = np.random.default_rng(1).integers(4, size=(30, 4))
    play(env, actions[:5])
    twin = copied(env)
    before = twin.snapshot()
    expected = play(env, actions[5:])
    assert twin.snapshot() == before
    assert equal_steps(play(twin, actions[5:]), expected)
    assert twin.snapshot() == env.snapshot()
    # A batch that was never reset can be copied, too.
    with pytest.raises(ResetNeeded):
        copied(batch(name, 4, **settings)).step(actions[0])


def test_snapshots_do_not_change_with_the_batch():
    env = batch(LAKE)
    env.reset(seed=1)
    snapshot = env.snapshot()
    digest = snapshot.digest
    play(env, np.random.default_rng(1).integers(4, size=(20, 3)))
    assert Snapshot(snapshot.layers).digest == digest
    assert env.snapshot() != snapshot
    with pytest.raises(ValueError, match="read-only"):
        snapshot.layers[0].state.buffer[0] = 1


def test_fresh_noise_is_chosen_by_its_seed():
    env = batch(LAKE, 4, desc=["FFFFF", "FFSFF", "FFFFG"], obs_type="discrete", max_actions=None)
    env.reset(seed=[1, 1, 1, 1])
    start = env.snapshot()
    actions = np.full((3, 4), 2)
    same_noise = play(env, actions)
    env.restore(start, seed=9)
    fresh = play(env, actions)
    env.restore(start, seed=9)
    assert equal_steps(play(env, actions), fresh)
    assert not equal_steps(same_noise, fresh)
    assert len(set(same_noise[-1][0])) == 1
    env.restore(start, seed=[9, None, None, None])
    mixed = play(env, actions)[-1][0]
    assert (mixed[0], mixed[3]) == (fresh[-1][0][0], same_noise[-1][0][3])


@pytest.mark.parametrize("name", [SOKOBAN, LAKE])
def test_a_fork_is_exact(name):
    env = batch(name, 6, num_levels=4)
    env.reset(seed=1)
    actions = np.random.default_rng(2).integers(4, size=(30, 6))
    play(env, actions[:3])
    assert (env.fork(4, 3).tolist(), env.fork(4, [2]).tolist()) == ([5, 0, 1], [2])
    for row in actions[3:]:
        result = env.step(np.full(6, row[0]))
        for part in result[:4]:
            assert all(np.array_equal(part[env], part[4]) for env in (5, 0, 1, 2))
    assert env.snapshot([3]) != env.snapshot([4]) == env.snapshot([0])


@pytest.mark.parametrize("name", [SOKOBAN, LAKE])
def test_foreign_snapshots_are_refused_and_change_nothing(name):
    env, wider = batch(name, 3), batch(name, 3, max_actions=7)
    other = batch({SOKOBAN: LAKE, LAKE: SOKOBAN}[name], 3)
    for each in (env, wider, other):
        each.reset(seed=1)
    before = env.snapshot()
    for snapshot, indices, message in (
        (other.snapshot(), None, "wanted a snapshot of"),
        (wider.snapshot(), None, "under other rules"),
        (env.snapshot([0, 1]), None, "wanted a snapshot of 3 environments or of one, got 2"),
    ):
        with pytest.raises(SnapshotError, match=message):
            env.restore(snapshot, indices)
    for indices in ([3], [-1], [0.5], 1):
        with pytest.raises(ConfigError, match="wanted"):
            env.restore(before, indices)
    with pytest.raises(ConfigError, match="at most 2 copies"):
        env.fork(0, 3)
    assert env.snapshot() == before


@pytest.mark.parametrize("name", [SOKOBAN, LAKE])
def test_mistakes_are_refused(name):
    for settings, message in (
        ({"action_type": "text"}, "vectorization_mode='sync'"),
        ({"autoreset_mode": "sometimes"}, "wanted autoreset_mode of"),
        ({"render_mode": "human"}, "wanted a render_mode"),
        ({"num_envs": 0}, "num_envs >= 1"),
        ({"max_actions": 0}, "max_actions as a whole number >= 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            batch(name, **settings)
    env = batch(name, autoreset_mode="Disabled", max_actions=1)
    with pytest.raises(ResetNeeded):
        env.step([0, 0, 0])
    env.reset(seed=1, options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(ResetNeeded):
        env.step([0, 0, 0])
    env.reset(seed=1)
    for actions in ([0, 1], [0, 1, 4], [0, -1, 0], [0.0, 1.0, 2.0], np.zeros((3, 1), int)):
        with pytest.raises(InvalidAction, match="wanted 3 actions from 0 to 3"):
            env.step(actions)
    env.step([0, 0, 0])
    with pytest.raises(EpisodeOver, match=r"environments \[0, 1, 2\] have ended"):
        env.step([0, 0, 0])
    for mask in ([True, False, False], np.ones(2, bool), np.ones(3)):
        with pytest.raises(ConfigError, match="reset_mask as an array of 3 booleans"):
            env.reset(options={"reset_mask": mask})
    with pytest.raises(ConfigError, match="a number or 3 seeds, got 2"):
        env.reset(seed=[1, 2])


@pytest.mark.parametrize("name", [SOKOBAN, LAKE])
def test_specs_make_a_batch_again_and_text_actions_are_left_to_gymnasiums_vector_environments(name):
    env = batch(name, max_actions=4)
    again = gym.make_vec(env.spec)
    assert (again.num_envs, again.settings) == (3, env.settings)
    env = gym.make_vec(name, num_envs=2, vectorization_mode="sync")
    observations, _ = env.reset(seed=4)
    assert observations == tuple(gym.make(name).reset(seed=seed)[0] for seed in (4, 5))
    assert env.step(("Up || Left", "what?"))[4]["action_is_valid"].tolist() == [True, False]


@pytest.mark.parametrize("name", [SOKOBAN, LAKE])
@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_every_environment_has_a_frame(name, mode):
    env = batch(name, render_mode=mode)
    env.reset(seed=5)
    for number, frame in enumerate(env.render()):
        single = gym.make(name, obs_type="array", render_mode=mode)
        single.reset(seed=5 + number)
        assert np.array_equal(frame, single.render())
    assert batch(name).render() is None


DRY_LAKE = {"obs_type": "discrete", "is_slippery": False, "max_actions": 12}
FLAT_ROOM = {"obs_type": "onehot", "max_actions": 12}
WRAPPED = [("tsr/FrozenLake-v0", DRY_LAKE), ("tsr/Sokoban-v0", FLAT_ROOM)]
NUM_WRAPPED = 3


def three(name, settings):
    return gym.make_vec(name, num_envs=NUM_WRAPPED, **settings)


def drawn(envs, steps=40):
    rng = np.random.default_rng(5)
    return [rng.integers(envs.single_action_space.n, size=NUM_WRAPPED) for _ in range(steps)]


@pytest.mark.parametrize(("name", "settings"), WRAPPED, ids=lambda value: str(value)[:20])
def test_transforms_and_statistics_are_those_of_plain_functions(name, settings):
    plain, clipped = three(name, settings), vector.ClipReward(three(name, settings), -0.05, 0.05)
    scaled = vector.TransformObservation(three(name, settings), lambda seen: seen + 1, plain.observation_space)
    counted, lengths = vector.RecordEpisodeStatistics(three(name, settings)), np.zeros(NUM_WRAPPED, int)
    seen = [plain.reset(seed=2)[0]]
    clipped.reset(seed=2)
    counted.reset(seed=2)
    assert np.array_equal(scaled.reset(seed=2)[0], seen[0] + 1)
    for actions in drawn(plain, 15):
        observations, paid, *_ = plain.step(actions)
        seen.append(observations)
        assert np.allclose(clipped.step(actions)[1], np.clip(paid, -0.05, 0.05))
        assert np.array_equal(scaled.step(actions)[0], observations + 1)
        *_, terminated, truncated, infos = counted.step(actions)
        lengths += 1
        for number in np.flatnonzero(terminated | truncated):
            assert infos["episode"]["l"][number] in (lengths[number], lengths[number] - 1)
            lengths[number] = 0
    if name == SOKOBAN:
        normalized = vector.NormalizeObservation(three(name, settings))
        normalized.reset(seed=2)
        for actions in drawn(plain, 15):
            normalized.step(actions)
        # Gymnasium begins with a count of 1e-4 at mean 0.
        assert np.allclose(normalized.obs_rms.mean, np.concatenate(seen).mean(axis=0), atol=1e-4)
