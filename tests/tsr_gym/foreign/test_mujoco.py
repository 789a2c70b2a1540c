"""MuJoCo without MuJoCo: arrays of a simulation, and cameras of its renderer."""

import gc
from types import SimpleNamespace

import numpy as np

from tsr_gym.foreign.mujoco import Camera, _arrays_of, cameras_of, keep_contexts, set_cameras

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


def test_a_camera_comes_back_also_where_no_picture_was_drawn_yet():
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


def test_the_camera_of_a_window_and_of_another_mode_is_left_alone():
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
        qpos=buffer[:3],
        qvel=buffer[3:5],
        nbuffer=buffer.nbytes,
        energy=np.array([1.5, 2.5]),
        solver_niter=np.array([7], np.int32),
        solver_nnz=np.zeros(0, np.int32),
        efc_force=np.ones(4),
        flg_energypos=True,
        warning=SimpleNamespace(lastinfo=warnings[:, 0], number=warnings[:, 1]),
        time=0.0,
    )


def test_results_outside_the_buffer_are_saved_and_those_in_the_arena_are_not():
    data = imitation()
    arrays = _arrays_of(data)
    saved = b"".join(view.tobytes() for view in arrays.views)
    for there in (data.energy, data.solver_niter, data.qpos, data.qvel):
        assert there.tobytes() in saved
    assert len(saved) == data.energy.nbytes + data.solver_niter.nbytes + data.qpos.nbytes + data.qvel.nbytes
    arrays.views[0][:] = 0
    assert data.energy.tolist() == [0, 0]


def test_counters_and_warnings_of_this_version_are_saved():
    data = imitation()
    arrays = _arrays_of(data)
    assert arrays.names == ("flg_energypos",)
    arrays.warnings[1][:] = [3, 4]
    assert data.warning.number.tolist() == [3, 4]
    del data.warning
    assert _arrays_of(data).warnings == ()
