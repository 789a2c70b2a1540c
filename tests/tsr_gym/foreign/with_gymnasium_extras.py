"""Atari, MuJoCo, Box2D and MiniGrid: continuation bit for bit.

Needs gymnasium[mujoco,box2d], ale-py and minigrid, and is not collected by default; `make test-gym-zoo` runs it."""

from ctypes.util import find_library
from itertools import product

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import (
    AddRenderObservation,
    AtariPreprocessing,
    FrameStackObservation,
    RenderCollection,
    StickyAction,
)

from tests.tsr_gym.foreign.worlds import play
from tsr_gym import Snapshot, SnapshotError, clone, env_support, replayable, restore, snapshot
from tsr_gym.foreign import atari
from tsr_gym.testing import check_snapshot
from tsr_gym.wrappers import MiniGridText

# Pusher-v4 needs an older MuJoCo.
MUJOCO = sorted(
    name
    for name, spec in gym.registry.items()
    if "envs.mujoco" in str(spec.entry_point) and name.endswith(("-v4", "-v5")) and name != "Pusher-v4"
)
BOX2D = sorted(name for name, spec in gym.registry.items() if "envs.box2d" in str(spec.entry_point))


@pytest.fixture(scope="module", autouse=True)
def ale():
    """Register the games."""
    import ale_py

    gym.register_envs(ale_py)
    return ale_py


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Work in a separate folder, because MuJoCo writes a log file into the current one."""
    monkeypatch.chdir(tmp_path)


def pytest_generate_tests(metafunc):
    # Imported here, because this module is collected where ale_py is not installed.
    if "game" in metafunc.fixturenames:
        import ale_py

        gym.register_envs(ale_py)
        metafunc.parametrize("game", sorted(name for name in gym.registry if name.startswith("ALE/")))


def sampled(env, number):
    return [env.action_space.sample() for _ in range(number)]


def ready(make, seed=3):
    env = make()
    env = replayable(env) if env_support(env).level == "replay" else env
    env.action_space.seed(seed)
    return env


def check_continuation(make, *, before=(0, 1, 15), after=8, clones=True):
    """Restore several snapshots: in place, after another episode, from bytes, and in a clone."""
    env, other = ready(make), ready(make, seed=99)
    other.reset(seed=77)
    play(other, sampled(other, 4))
    for seed, num_steps in enumerate(before):
        env.reset(seed=seed)
        play(env, sampled(env, num_steps))
        snap, actions = snapshot(env), sampled(env, after)
        went_on = play(env, actions)
        end = snapshot(env)
        for target, taken in ((env, snap), (other, Snapshot.from_bytes(snap.to_bytes())), (env, snap)):
            restore(target, taken)
            assert snapshot(target) == snap
            assert play(target, actions) == went_on
            assert snapshot(target) == end
        restore(env, snap)
        if clones:
            assert play(clone(env), actions) == went_on


@pytest.mark.parametrize("name", MUJOCO)
def test_mujoco_continues_bit_for_bit(name):
    assert env_support(gym.make(name)).level == "exact"
    check_continuation(lambda: gym.make(name), before=(0, 1, 15, 60))


def test_a_forward_pass_would_not_be_exact():
    # The trap of MuJoCo: after a step the positions of bodies lag behind the positions of joints.
    env = gym.make("Ant-v5")
    env.reset(seed=1)
    play(env, [env.action_space.sample() for _ in range(5)])
    base = env.unwrapped
    lagging = base.data.xpos.copy()
    base.set_state(base.data.qpos.copy(), base.data.qvel.copy())
    assert not np.array_equal(base.data.xpos, lagging)


def test_every_array_of_fixed_size_of_a_simulation_comes_back():
    import mujoco

    env, other = gym.make("Humanoid-v5").unwrapped, gym.make("Humanoid-v5").unwrapped
    env.reset(seed=1)
    play(env, [env.action_space.sample() for _ in range(30)])
    snap = snapshot(env)
    other.reset(seed=2)
    restore(other, snap)
    names = [name for name in dir(env.data) if isinstance(getattr(env.data, name), np.ndarray)]
    fresh = mujoco.MjData(env.model)
    fixed = [name for name in names if getattr(fresh, name).size and not name.startswith(("efm_", "map_", "efc_"))]
    fixed = [name for name in fixed if name not in ("tree_island", "dof_island", "tendon_efcadr", "plugin_data")]
    assert len(fixed) > 70
    differing = [name for name in fixed if getattr(env.data, name).tobytes() != getattr(other.data, name).tobytes()]
    assert differing == []
    assert env.data.time == other.data.time
    integration = [np.empty(mujoco.mj_stateSize(env.model, mujoco.mjtState.mjSTATE_INTEGRATION)) for _ in range(2)]
    for target, state in zip((env, other), integration, strict=True):
        mujoco.mj_getState(target.model, target.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    assert integration[0].tobytes() == integration[1].tobytes()


def test_a_snapshot_with_another_model_is_refused_and_changes_nothing():
    env, heavier = gym.make("Hopper-v5"), gym.make("Hopper-v5")
    heavier.unwrapped.model.body_mass[1] *= 2
    for target in (env, heavier):
        target.reset(seed=1)
    before = snapshot(env)
    with pytest.raises(SnapshotError, match="taken with another model"):
        restore(env, snapshot(heavier))
    assert snapshot(env) == before
    env.unwrapped.model.opt.gravity[2] = -1
    with pytest.raises(SnapshotError, match="another model"):
        restore(env, before)


def falls(hidden):
    """Return a subclass of a Gymnasium class with more attributes, some of which may be hidden."""
    from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

    class CountsFalls(HalfCheetahEnv):
        seen = 0

        def step(self, action):
            observation, *result, info = super().step(action)
            self.falls = getattr(self, "falls", 0) + bool(self.data.qpos[2] > 0)
            type(self).seen += hidden
            return observation + type(self).seen, *result, info | {"falls": self.falls}

    return CountsFalls


def test_an_environment_of_others_on_mujoco_is_proved_first():
    assert env_support(falls(0)()).level == "exact"
    check_continuation(falls(0))
    env = falls(1)()
    env.reset(seed=1)
    assert env_support(env).level == "none"
    with pytest.raises(SnapshotError, match="copies of CountsFalls play different episodes"):
        snapshot(env)


def test_fresh_noise_on_mujoco_leaves_the_simulation_alone():
    env = gym.make("Reacher-v5")
    env.reset(seed=1)
    snap = snapshot(env)
    actions = [env.action_space.sample() for _ in range(4)]
    went_on = play(env, actions)
    restore(env, snap, noise="fresh", seed=5)
    assert play(env, actions) == went_on
    first = env.reset()[0]
    restore(env, snap, noise="fresh", seed=5)
    assert np.array_equal(env.reset()[0], first)


@pytest.mark.parametrize("name", BOX2D)
def test_box2d_is_replayed_bit_for_bit(name):
    assert env_support(gym.make(name)).level == "replay"
    few = "CarRacing" in name
    check_continuation(lambda: gym.make(name), before=(0, 3) if few else (0, 1, 40), after=4 if few else 20)


def test_box2d_without_a_recorder_is_refused_with_the_cure():
    env = gym.make("LunarLander-v3")
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match=r"the attribute .* SwigPyObject.*env_support"):
        snapshot(env)
    assert "tsr_gym.replayable(env) before reset()" in env_support(env).reason


def test_a_game_continues_bit_for_bit(game):
    if env_support(gym.make(game)).level == "exact":
        check_continuation(lambda: gym.make(game), before=(0, 1, 40), clones=False)
    else:
        assert gym.make(game).unwrapped._game in ("miniature_golf", "tic_tac_toe_3d")


def test_a_game_without_stickiness_and_with_steps_of_one_frame_continues_bit_for_bit(game):
    def make():
        return gym.make(game, frameskip=1, repeat_action_probability=0.0)

    if env_support(make()).level == "exact":
        check_continuation(make, before=(0, 1, 30), after=6, clones=False)
    else:
        assert make().unwrapped._game in atari._DRAWN_OVER.keys() | atari._UNREAD.keys()


@pytest.mark.parametrize(
    "settings",
    [
        {"repeat_action_probability": 0.9, "frameskip": 1}, {"frameskip": (2, 5)},
        {"continuous": True, "repeat_action_probability": 0.5}, {"obs_type": "ram", "repeat_action_probability": 1.0},
        {"obs_type": "grayscale", "full_action_space": True}, {"sound_obs": True}, {"mode": 4, "difficulty": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_game_under_other_settings_continues_bit_for_bit(settings):
    check_continuation(lambda: gym.make("ALE/Breakout-v5", **settings), before=(0, 1, 20, 60))


@pytest.mark.parametrize("name", ["Breakout", "Pong", "MsPacman", "SpaceInvaders", "Qbert"])
def test_ales_own_copy_forgets_the_held_action_and_ours_finds_it_unwatched(name):
    forgotten = 0
    # During its opening sequence a game ignores all actions.
    for seed, number in product(range(10), (40, 150, 400)):
        env = gym.make(f"ALE/{name}-v5", repeat_action_probability=0.7, frameskip=1)
        env.action_space.seed(seed)
        env.reset(seed=seed)
        play(env, sampled(env, number))
        base = env.unwrapped
        # No frames were recorded: the held action is found by trying.
        snap, state, actions = snapshot(env), base.clone_state(include_rng=True), sampled(env, 40)
        went_on = play(env, actions)
        restore(env, snap)
        assert play(env, actions) == went_on
        base.restore_state(state)
        forgotten += play(env, actions) != went_on
    assert forgotten


def test_the_held_action_that_is_found_by_trying_is_the_one_that_watching_knows():
    for seed in range(6):
        watched, unwatched = (gym.make("ALE/Breakout-v5", repeat_action_probability=0.6, frameskip=1) for _ in "ab")
        watched.reset(seed=seed)
        unwatched.reset(seed=seed)
        snapshot(watched)
        watched.action_space.seed(seed)
        for action in sampled(watched, 35):
            watched.step(action)
            unwatched.step(action)
        restore(unwatched, snapshot(unwatched))
        actions = sampled(watched, 20)
        assert play(unwatched, actions) == play(watched, actions)


def test_the_random_numbers_of_a_game_are_those_that_are_computed():
    env = gym.make("ALE/Breakout-v5", repeat_action_probability=0.3, frameskip=1).unwrapped
    env.reset(seed=5)
    before = env.clone_state(include_rng=True).serialize()
    for _ in range(700):
        env.ale.act(0)
    after = env.clone_state(include_rng=True).serialize()
    _, computed = atari.draws(atari.twister_of(before), 700)
    assert computed == atari.twister_of(after)
    _, ale_seed = np.random.SeedSequence(5).generate_state(2)
    assert atari.twister_of(before) == atari.seeded(int(ale_seed))


def test_fresh_noise_makes_a_sticky_game_stick_elsewhere_and_leaves_another_alone():
    for probability, different in ((0.5, True), (0.0, False)):
        env = gym.make("ALE/Pong-v5", repeat_action_probability=probability)
        env.reset(seed=1)
        play(env, [0] * 30)
        snap = snapshot(env)
        env.action_space.seed(1)
        actions = sampled(env, 30)
        came = {}
        for seed in (1, 2, 3, 1):
            restore(env, snap, noise="fresh", seed=seed)
            again = play(env, actions)
            assert came.setdefault(seed, again) == again
        assert (len({tuple(target) for target in came.values()}) > 1) == different


def test_preprocessed_and_stacked_pictures_continue_bit_for_bit():
    pytest.importorskip("cv2")

    def make():
        return FrameStackObservation(AtariPreprocessing(gym.make("ALE/Pong-v5", frameskip=1)), 4)

    check_continuation(make, before=(0, 1, 20))


def test_a_game_that_cannot_be_read_back_is_replayed():
    name = "ALE/MiniatureGolf-v5"
    assert "miniature_golf: ALE reads other flags than it wrote" in env_support(gym.make(name)).reason
    check_continuation(lambda: gym.make(name), before=(0, 12), clones=False)
    env = gym.make(name).unwrapped
    env.reset(seed=1)
    state = env.clone_state(include_rng=True)
    env.restore_state(state)
    # If this fails, ALE reads back the state that it wrote, and the game need not be refused any more.
    assert env.clone_state(include_rng=True).serialize() != state.serialize()


def test_a_snapshot_of_another_game_or_a_damaged_one_is_refused_and_changes_nothing():
    pong, breakout = gym.make("ALE/Pong-v5"), gym.make("ALE/Breakout-v5")
    pong.reset(seed=1)
    breakout.reset(seed=1)
    before = snapshot(pong)
    layers = before.layers
    emulator = layers[-1].state.native
    cut = layers[-1].state.portable()
    broken = cut.__class__(cut.settings, cut.attributes, cut.position, emulator._replace(state=emulator.state[:99]))
    for snap in (snapshot(breakout), Snapshot((*layers[:-1], layers[-1]._replace(state=broken)))):
        with pytest.raises(SnapshotError, match=r"other settings|cannot read its state"):
            restore(pong, snap)
    assert snapshot(pong) == before


@pytest.mark.parametrize("name", ["phys2d/CartPole-v1", "tabular/Blackjack-v0"])
def test_gymnasiums_environments_on_jax_are_replayed_and_their_keys_are_reseeded(name):
    pytest.importorskip("flax")
    check_continuation(lambda: gym.make(name), before=(0, 1, 4), after=4)
    env = ready(lambda: gym.make(name))
    env.reset(seed=1)
    snap = snapshot(env)
    keys = set()
    for seed in (1, 2, 1):
        restore(env, snap, noise="fresh", seed=seed)
        keys.add(str(env.unwrapped.rng))
    assert len(keys) == 2


def test_results_of_the_solver_outside_the_buffer_and_warnings_are_restored():
    env = gym.make("Humanoid-v5").unwrapped
    env.model.opt.enableflags |= 2
    env.reset(seed=1)
    env.action_space.seed(1)
    play(env, sampled(env, 5))
    env.data.warning.number[2] = 4
    names = [name for name in ("energy", "solver_niter", "solver_nnz", "solver_fwdinv") if hasattr(env.data, name)]
    held = {name: getattr(env.data, name).copy() for name in names}
    assert held["energy"].any()
    assert held["solver_niter"].any()
    snap = Snapshot.from_bytes(snapshot(env).to_bytes())
    play(env, sampled(env, 5))
    env.data.warning.number[2] = 0
    restore(env, snap)
    assert {name: getattr(env.data, name).tobytes() for name in names} == {
        name: array.tobytes() for name, array in held.items()
    }
    assert env.data.warning.number.tolist() == [0, 0, 4, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "Hopper-v5"])
@pytest.mark.parametrize("wrap", [AddRenderObservation, RenderCollection], ids=lambda wrap: wrap.__name__)
def test_pictures_continue_bit_for_bit(name, wrap):
    if name == "Hopper-v5" and find_library("EGL") is None:
        pytest.skip("MuJoCo draws by EGL where there is no screen, and libegl1 is not installed")
    small = {"width": 64, "height": 48} if name == "Hopper-v5" else {}
    check_continuation(lambda: wrap(gym.make(name, render_mode="rgb_array", **small)), before=(0, 5), after=4)


def test_a_sticky_wrapper_may_draw_from_the_generator_of_a_replayed_world():
    check_continuation(lambda: StickyAction(gym.make("LunarLander-v3"), 0.5, (1, 3)), before=(0, 9), after=20)


@pytest.mark.parametrize("name", ["BipedalWalker-v3", "tabular/CliffWalking-v0"])
def test_actions_of_jax_are_on_record(name):
    pytest.importorskip("flax")
    from gymnasium.wrappers import JaxToNumpy

    check_continuation(lambda: JaxToNumpy(gym.make(name)), before=(0, 3), after=3)


def test_a_game_with_sound_is_replayed():
    support = env_support(gym.make("ALE/Breakout-v5", sound_obs=True))
    assert support.level == "replay"
    assert "the sound depends on earlier frames" in support.reason


def test_a_cartridge_whose_state_is_rounded_stands_still_under_snapshots():
    env = gym.make("ALE/Pitfall2-v5")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(4):
        env.step(env.action_space.sample())
        assert len({snapshot(env).digest for _ in range(4)}) == 1
    snap, actions = snapshot(env), sampled(env, 6)
    went_on = play(env, actions)
    restore(env, snap)
    assert snapshot(env) == snap
    assert play(env, actions) == went_on


gym.register_envs(pytest.importorskip("minigrid", reason="needs MiniGrid: make test-gym-zoo"))
NAMES = sorted(name for name, spec in gym.registry.items() if "minigrid.envs" in str(spec.entry_point))
# WFC generates by wave function collapse and needs more packages.
NAMES = [name for name in NAMES if "WFC" not in name]
# One of each type; the others differ in size.
KINDS = sorted({name.split("-")[1]: name for name in NAMES if name.startswith("MiniGrid-")}.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_is_proven_to_be_its_copies(name):
    env = gym.make(name)
    env.reset(seed=0)
    support = env_support(env)
    assert support.level == "deepcopy", support


@pytest.mark.parametrize("name", KINDS)
def test_snapshots_of_an_environment_in_words_are_exact(name):
    env = MiniGridText(gym.make(name))
    env.reset(seed=0)
    assert env_support(env).level == "deepcopy"
    check_snapshot(env, other_processes=False, seeds=(1,))


def test_the_words_are_those_of_the_view_of_a_known_room():
    env = MiniGridText(gym.make("MiniGrid-Empty-5x5-v0"))
    text, _ = env.reset(seed=0)
    assert text.split("\n")[0] == "Mission: get to the green goal square."
    walked = [env.step(word) for word in ("forward", "forward", "right", "forward", "forward")]
    assert walked[-2][0].split("\n")[2] == "You look south. In front of you: a green goal."
    assert walked[-1][2]
    assert walked[-1][1] > 0.9
