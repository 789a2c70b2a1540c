"""Adapters of Gymnasium's worlds without their libraries: Atari, MuJoCo, and functions that wrappers hold."""

import copy
import gc
import struct
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import AddRenderObservation, TransformObservation

from tests.tsr_gym.foreign import worlds
from tests.tsr_gym.foreign.worlds import play
from tsr_gym import SnapshotError, clone, replayable
from tsr_gym.foreign.atari import REPEATING, AtariAdapter, accepting, draws, seeded, twister_of, with_twister
from tsr_gym.foreign.gymnasium_wrappers import rebind
from tsr_gym.foreign.mujoco import Camera, _arrays_of, cameras_of, keep_contexts, set_cameras


def reference(seed, count):
    """Return the first numbers of the Mersenne twister as its authors published it (Matsumoto and Nishimura, 1998)."""
    state = [seed]
    for index in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + index) & 0xFFFFFFFF)
    numbers = []
    while len(numbers) < count:
        for index in range(624):
            joined = (state[index] & 0x80000000) | (state[(index + 1) % 624] & 0x7FFFFFFF)
            state[index] = state[(index + 397) % 624] ^ (joined >> 1) ^ (0x9908B0DF if joined & 1 else 0)
        for word in state:
            word ^= word >> 11
            word ^= (word << 7) & 0x9D2C5680
            word ^= (word << 15) & 0xEFC60000
            numbers.append(word ^ (word >> 18))
    return numbers[:count]


def serialised(words, used=None, tail=b"\1\0\0\0\2\0\0\0"):
    """Return a state in the emulator's format: numbers, the console with the twister's text at its end, numbers."""
    text = b" ".join(b"%d" % word for word in (*words, *(() if used is None else (used,))))
    console = b"System\1\0 some console \0" + struct.pack("<I", len(text)) + text
    return bytes(24) + struct.pack("<I", len(console)) + console + tail


@pytest.mark.parametrize("seed", [1, 5489, 1731038949])
def test_a_frame_is_decided_by_every_second_number_of_the_twister(seed):
    # The value that the C++ standard specifies for the default seed.
    assert seed != 5489 or reference(seed, 10000)[-1] == 4123659995
    wanted = [number / 2**32 for number in reference(seed, 2000)[::2]]
    numbers, after = draws(seeded(seed), 700)
    assert (numbers.tolist(), draws(after, 300)[0].tolist()) == (wanted[:700], wanted[700:])


def test_a_twister_is_read_where_it_stands_and_written_back_in_both_forms():
    twister = draws(seeded(7), 33)[1]
    state = serialised([1] * 624, 624)
    written = with_twister(state, twister)
    assert twister_of(written) == twister
    assert with_twister(written, twister_of(state)) == state
    assert written[-8:] == state[-8:]
    state = serialised([1] * 624)
    assert twister_of(state).used == 624
    assert with_twister(with_twister(state, seeded(3)), twister_of(state)) == state
    assert twister_of(with_twister(state, seeded(3))) == seeded(3)


@pytest.mark.parametrize(
    "state",
    [b"", bytes(40), serialised([1] * 10, 1), serialised([1] * 624, 624)[:-40], b"x" + serialised([1] * 624, 624)],
    ids=["nothing", "zeros", "too few words", "cut short", "shifted"],
)
def test_another_form_is_refused(state):
    with pytest.raises(SnapshotError, match="ale_py"):
        twister_of(state)


def test_twisters_that_force_a_frame_to_accept_or_to_repeat_do():
    for probability in (0.01, 0.25, 0.9, 0.999):
        assert draws(accepting(probability), 1)[0][0] >= probability
    assert draws(REPEATING, 2000)[0].max() == 0


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({}, "exact"), ({"sound_obs": True}, "none"), ({"_game": "miniature_golf"}, "none"),
        ({"_game": "video_checkers"}, "exact"), ({"_game": "video_checkers", "_frameskip": (2, 5)}, "none"),
        ({"_game": "video_checkers", "_frameskip": 1, "_obs_type": "ram"}, "exact"),
    ],
    ids=str,
)  # fmt: skip
def test_a_game_is_exact_where_ale_saves_all_of_what_it_shows(settings, level):
    game = {"_game": "breakout", "_frameskip": 4, "_obs_type": "rgb", "sound_obs": False}
    support = AtariAdapter().support(SimpleNamespace(**(game | settings)))
    assert support.level == level
    if "sound_obs" in settings:
        assert support.reason == "breakout: the sound depends on earlier frames, which ALE does not save"


CALLS = []


class Context:
    def __init__(self, name):
        self.name = name

    def make_current(self):
        CALLS.append(f"{self.name} current")

    def free(self):
        CALLS.append(f"{self.name} gone")


class Viewer:
    def __init__(self, name, lookat):
        self.cam = SimpleNamespace(type=0, lookat=np.array(lookat), fixedcamid=-1, distance=2.5)
        self.opengl_context = Context(name)
        self.con = SimpleNamespace(free=lambda: CALLS.append(f"pictures of {name} freed"))

    def make_context_current(self):
        self.opengl_context.make_current()

    def free(self):
        self.opengl_context.free()

    def __del__(self):
        self.free()


class Renderer:
    """Makes a viewer on the first request; its camera looks at the present simulation."""

    def __init__(self, name):
        self.name, self._viewers = name, {}

    def _get_viewer(self, render_mode):
        if render_mode not in self._viewers:
            self._viewers[render_mode] = Viewer(self.name, [0.0, 0.0, 0.0])
        return self._viewers[render_mode]


def made(name="one", mode="rgb_array"):
    return SimpleNamespace(render_mode=mode, mujoco_renderer=Renderer(name))


def test_a_camera_comes_back_and_others_are_left_alone():
    env = made()
    camera = env.mujoco_renderer._get_viewer("rgb_array").cam
    camera.lookat[:] = [1.0, 2.0, 3.0]
    camera.type = 1
    taken = cameras_of(env)
    assert taken == (Camera("rgb_array", 1, (1.0, 2.0, 3.0), (("fixedcamid", -1), ("distance", 2.5))),)
    camera.lookat[:] = 0
    camera.distance = 9.0
    for target in (env, made()):
        set_cameras(target, taken)
        assert cameras_of(target) == taken
    window = made(mode="human")
    window.mujoco_renderer._get_viewer("human")
    assert cameras_of(window) == ()
    env = made()
    env.mujoco_renderer._get_viewer("rgb_array")
    set_cameras(window, cameras_of(env))
    assert list(window.mujoco_renderer._viewers) == ["human"]
    assert cameras_of(SimpleNamespace(render_mode=None)) == ()


def test_each_environment_draws_and_frees_in_a_separate_context():
    early, late = made("early"), made("late")
    early.mujoco_renderer._get_viewer("rgb_array")
    for env in (early, late, early):
        keep_contexts(env)
    CALLS.clear()
    early.mujoco_renderer._get_viewer(render_mode="rgb_array")
    late.mujoco_renderer._get_viewer(render_mode="rgb_array")
    early.mujoco_renderer._get_viewer(render_mode="rgb_array")
    assert CALLS == ["early current", "late current", "early current"]
    CALLS.clear()
    late.mujoco_renderer._get_viewer("rgb_array").free()
    del env, late
    gc.collect()
    assert CALLS == ["late current", "late current", "pictures of late freed", "late gone"]


def imitation():
    buffer, warnings = np.arange(8.0), np.zeros((2, 3), np.int32)
    return SimpleNamespace(
        qpos=buffer[:3], qvel=buffer[3:5], nbuffer=buffer.nbytes, energy=np.array([1.5, 2.5]),
        solver_niter=np.array([7], np.int32), solver_nnz=np.zeros(0, np.int32), efc_force=np.ones(4),
        flg_energypos=True, warning=SimpleNamespace(lastinfo=warnings[:, 0], number=warnings[:, 1]), time=0.0,
    )  # fmt: skip


def test_results_outside_the_buffer_and_this_versions_counters_are_saved():
    data = imitation()
    arrays = _arrays_of(data)
    saved = b"".join(view.tobytes() for view in arrays.views)
    for there in (data.energy, data.solver_niter, data.qpos, data.qvel):
        assert there.tobytes() in saved
    assert len(saved) == data.energy.nbytes + data.solver_niter.nbytes + data.qpos.nbytes + data.qvel.nbytes
    arrays.views[0][:] = 0
    assert data.energy.tolist() == [0, 0]
    data = imitation()
    arrays = _arrays_of(data)
    assert arrays.names == ("flg_energypos",)
    arrays.warnings[1][:] = [3, 4]
    assert data.warning.number.tolist() == [3, 4]
    del data.warning
    assert _arrays_of(data).warnings == ()


class Holds(gym.Wrapper):
    """Keeps functions that refer to layers in every possible way."""

    def __init__(self, env):
        super().__init__(env)
        base = env.unwrapped
        seen = 0

        def count(times):
            nonlocal seen
            seen += 1
            return (self, base.position, seen) if times == 0 else count(times - 1)

        def nobody(number):
            return number + later

        self.bound = self.place
        self.deeper = env.observe
        self.recursive = count
        self.again = lambda: count(0)[2]
        self.indirect = lambda: [count(0)[0], base.position]
        self.nobody = nobody
        later = 1

    def place(self):
        return self.env.position


def pair():
    env = worlds.Plain()
    env.position = 3
    wrapper, other = Holds(env), worlds.Plain()
    other.position = 50
    twin = copy.copy(wrapper)
    twin.env = other
    rebind(twin, wrapper)
    return wrapper, twin


def test_functions_of_a_copied_wrapper_look_at_the_copied_stack():
    wrapper, twin = pair()
    assert (twin.bound(), wrapper.bound()) == (50, 3)
    assert (twin.deeper()[0], wrapper.deeper()[0]) == (50.0, 3.0)
    assert (twin.recursive(2)[:2], wrapper.recursive(2)[:2]) == ((twin, 50), (wrapper, 3))
    assert (twin.indirect(), wrapper.indirect()) == ([twin, 50], [wrapper, 3])
    wrapper, twin = pair()
    assert [twin.recursive(0)[2], twin.again(), twin.recursive(1)[2]] == [1, 2, 4]
    assert wrapper.again() == 1
    wrapper, twin = pair()
    assert twin.nobody is wrapper.nobody
    assert twin.nobody(1) == 2


def test_what_a_class_leaves_out_of_its_copies_is_there_nevertheless():
    class Forgetful(Holds):
        def __getstate__(self):
            return {"env": self.env}

    wrapper = Forgetful(worlds.Plain())
    twin = copy.copy(wrapper)
    assert "bound" not in vars(twin)
    twin.env = worlds.Plain()
    rebind(twin, wrapper)
    assert vars(twin).keys() == vars(wrapper).keys()
    assert twin.action_space is twin.env.action_space
    assert twin.bound.__self__ is twin


def test_a_clone_shows_its_own_pictures_and_draws_from_its_own_generator():
    env = AddRenderObservation(gym.make("CartPole-v1", render_mode="rgb_array"))
    env.reset(seed=1)
    twin = clone(env)
    shown, unmoved = twin.step(1)[0], env.render()
    assert not np.array_equal(shown, unmoved)
    assert np.array_equal(shown, twin.render())
    assert np.array_equal(shown, env.step(1)[0])

    def noisy(env):
        return TransformObservation(env, lambda one: one + env.np_random.random(), None)

    for make in (worlds.Plain, lambda: replayable(worlds.LockedWithArguments())):
        env = noisy(make())
        env.reset(seed=2)
        assert play(clone(env), [1, 2, 0]) == play(env, [1, 2, 0])
