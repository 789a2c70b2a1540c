"""Gymnasium's MuJoCo environments: the whole simulation, derived quantities included, and the renderer's cameras.

After a step of MuJoCo the derived quantities (positions of bodies, contact forces) belong to the state before the last
substep, and environments read them before their next step. A forward pass after setting positions and velocities is
therefore not exact, and every array of fixed size is saved. A camera is set up where the simulation stood when the
first picture was drawn: two environments in the same state show equal pictures only if their cameras are equal.
"""

import sys
from functools import partial
from hashlib import blake2b
from types import ModuleType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign.attributes import AttributesState, capture, checked, put_back
from tsr_gym.foreign.objects import SharedVerdicts, Support, Verdicts, fresh
from tsr_gym.foreign.play import Means, flaw_of

_CAMERA_NUMBERS = ("fixedcamid", "trackbodyid", "distance", "azimuth", "elevation", "orthographic")


class Camera(NamedTuple):
    """A camera of the renderer.

    Attributes:
        mode: The render mode that it serves.
        kind: Free, tracking or fixed, as MuJoCo numbers it.
        lookat: The point that it looks at, in metres.
        numbers: Its other settings by name.
    """

    mode: str
    kind: int
    lookat: tuple[float, ...]
    numbers: tuple[tuple[str, float], ...]


def cameras_of(env: Any) -> tuple[Camera, ...]:
    """Return the cameras of an environment, without that of a window, which the user moves."""
    cameras = []
    for mode, viewer in sorted(_viewers_of(env).items()):
        camera = viewer.cam
        numbers = tuple((name, getattr(camera, name)) for name in _CAMERA_NUMBERS if name in dir(camera))
        cameras.append(Camera(mode, int(camera.type), tuple(camera.lookat.tolist()), numbers))
    return tuple(cameras)


def set_cameras(env: Any, cameras: tuple[Camera, ...]) -> None:
    """Set the cameras of an environment, and create the one of its render mode if necessary."""
    if env.render_mode in {camera.mode for camera in cameras} - _viewers_of(env).keys():
        env.mujoco_renderer._get_viewer(env.render_mode)
    viewers = _viewers_of(env)
    for camera in cameras:
        if camera.mode in viewers:
            target = viewers[camera.mode].cam
            target.type = camera.kind
            target.lookat[:] = camera.lookat
            for name, number in camera.numbers:
                setattr(target, name, number)


def keep_contexts(env: Any) -> None:
    """Make an environment draw into its own OpenGL context, and free it in the end.

    Gymnasium draws into the context that was made last, and frees pictures in the current context, which may be those
    of other environments.
    """
    renderer = getattr(env, "mujoco_renderer", None)
    if renderer is not None and "_get_viewer" not in vars(renderer):
        renderer._get_viewer = partial(_viewer_in_its_context, ref(renderer))
        for viewer in _viewers_of(env).values():
            _keep_context(viewer)


def _viewer_in_its_context(renderer: ref[Any], render_mode: str | None) -> Any:
    held: Any = renderer()
    viewer = type(held)._get_viewer(held, render_mode)
    if render_mode != "human":
        _keep_context(viewer)
    viewer.make_context_current()
    return viewer


def _keep_context(viewer: Any) -> None:
    if "free" not in vars(viewer):
        viewer.free = partial(_free, [(viewer.con, viewer.opengl_context)])


def _free(left: list[Any]) -> None:
    # While the interpreter shuts down, the display and all contexts are gone already.
    while left and not sys.is_finalizing():
        pictures, context = left.pop()
        context.make_current()
        pictures.free()
        context.free()


def _viewers_of(env: Any) -> dict[str, Any]:
    viewers = getattr(getattr(env, "mujoco_renderer", None), "_viewers", {})
    return {mode: viewer for mode, viewer in viewers.items() if mode != "human"}


WITHOUT = frozenset({"model", "data", "mujoco_renderer"})
# Pointers of plug-ins, which are valid in one process only.
_LEFT_OUT = frozenset({"plugin", "plugin_data"})
# Results of a step that are stored outside of the buffer, and that infos may report.
_BESIDE = ("energy", "solver_niter", "solver_nnz", "solver_fwdinv")
_NUMBERS = (
    *("flg_energypos", "flg_energyvel", "flg_subtreevel", "flg_rnepost"),
    *("nbody_awake", "nv_awake", "ntree_awake", "nparent_awake"),
)


class Simulation(NamedTuple):
    """A simulation's state.

    Attributes:
        model: Fingerprint of the model.
        time: Simulated seconds.
        numbers: Counters and flags that are not arrays.
        warnings: The counts of MuJoCo's warnings.
        cameras: The cameras of the renderer.
        memory: All arrays of fixed size, concatenated.
    """

    model: str
    time: float
    numbers: tuple[int, ...]
    warnings: tuple[tuple[int, ...], ...]
    cameras: tuple[Camera, ...]
    memory: bytes


class _Arrays(NamedTuple):
    """A simulation's arrays of fixed size as bytes, and the counters and warnings that this version of MuJoCo has."""

    views: tuple[np.ndarray[Any, Any], ...]
    names: tuple[str, ...]
    warnings: tuple[np.ndarray[Any, Any], ...]


class _Model:
    """The bytes of a model when it was last read, and their fingerprint."""

    def __init__(self, size: int) -> None:
        # Compared in words of eight bytes.
        self.saved, self.scratch = np.zeros(-(-size // 8), np.uint64), np.zeros(-(-size // 8), np.uint64)
        self.size = size
        self.fingerprint = ""


class MujocoAdapter:
    """Reads environments that inherit from `gymnasium.envs.mujoco.MujocoEnv`."""

    def __init__(self) -> None:
        self._arrays: Verdicts[_Arrays] = Verdicts()
        self._models: Verdicts[_Model] = Verdicts()
        self._proofs: SharedVerdicts[str | None] = SharedVerdicts()

    def support(self, env: Any) -> Support:
        """Return ``"exact"`` unless the model has plug-ins, or copies of a class outside of Gymnasium are not exact."""
        keep_contexts(env)
        if env.model.nplugin:
            return Support("none", f"the model of {type(env).__name__} uses plug-ins, which have separate state")
        if not type(env).__module__.startswith("gymnasium.envs.mujoco."):
            flaw = self._proofs.of(env, self._flaw)
            if flaw is not None:
                return Support("none", flaw)
        return Support("exact", "the whole memory of the simulation is saved")

    def read(self, env: Any) -> AttributesState:
        """Return simulation and attributes."""
        support = self.support(env)
        if support.level != "exact":
            raise SnapshotError(f"{support.reason}. Call tsr_gym.env_support(env) to see the alternatives")
        return self._read(env)

    def _flaw(self, env: Any) -> str | None:
        return flaw_of(env, Means(self._read, lambda twin, state: self.write(twin, state, None), _unseen))

    def _read(self, env: Any) -> AttributesState:
        data = env.data
        arrays = self._arrays.of(data, _arrays_of)
        simulation = Simulation(
            self._fingerprint(env),
            data.time,
            tuple([int(getattr(data, name)) for name in arrays.names]),
            tuple([tuple(warnings.tolist()) for warnings in arrays.warnings]),
            cameras_of(env),
            # One copy of all arrays is faster than a hundred small ones.
            np.concatenate(arrays.views).tobytes(),
        )
        return capture(env, without=WITHOUT, native=simulation)

    def check(self, env: Any, state: Any, seed: int | None) -> AttributesState:
        """Return the state if it fits the environment's model."""
        made = checked(env, state, without=WITHOUT)
        simulation = made.native
        arrays = self._arrays.of(env.data, _arrays_of)
        if not isinstance(simulation, Simulation) or simulation.model != self._fingerprint(env):
            raise SnapshotError(
                f"the snapshot was taken with another model: make {type(env).__name__} with the same xml_file and the "
                "same changes to its model"
            )
        if len(simulation.memory) != sum(view.size for view in arrays.views):
            raise SnapshotError("the snapshot comes from another version of MuJoCo, or is damaged")
        return made

    def write(self, env: Any, state: AttributesState, seed: int | None) -> None:
        """Set simulation and attributes."""
        simulation, data = state.native, env.data
        arrays = self._arrays.of(data, _arrays_of)
        memory = np.frombuffer(simulation.memory, np.uint8)
        start = 0
        for view in arrays.views:
            view[:] = memory[start : start + view.size]
            start += view.size
        data.time = simulation.time
        for name, number in zip(arrays.names, simulation.numbers, strict=True):
            setattr(data, name, number)
        for warnings, counts in zip(arrays.warnings, simulation.warnings, strict=True):
            warnings[:] = counts
        keep_contexts(env)
        set_cameras(env, simulation.cameras)
        put_back(env, state, seed, without=WITHOUT)

    def copy(self, env: Any) -> Any:
        """Return an environment that is made with the same arguments."""
        return fresh(env)

    def _fingerprint(self, env: Any) -> str:
        mujoco = _mujoco(env)
        # Comparing the bytes is faster than hashing them, so the fingerprint is computed only after a change.
        entry = self._models.of(env.model, lambda model: _Model(mujoco.mj_sizeModel(model)))
        mujoco.mj_saveModel(env.model, None, entry.scratch.view(np.uint8)[: entry.size])
        if not entry.fingerprint or not np.array_equal(entry.scratch, entry.saved):
            entry.saved, entry.scratch = entry.scratch, entry.saved
            entry.fingerprint = blake2b(entry.saved.tobytes(), digest_size=16).hexdigest()
        return entry.fingerprint


def _unseen(env: Any) -> Any:
    return fresh(env, unseen=True)


def _mujoco(env: Any) -> ModuleType:
    return sys.modules[type(env.model).__module__.partition(".")[0]]


def _arrays_of(data: Any) -> _Arrays:
    """Return the arrays of a simulation without those in its arena, which every step allocates again."""
    start, size = data.qpos.ctypes.data, data.nbuffer
    present = dir(data)
    beside = [getattr(data, name) for name in _BESIDE if name in present]
    views = [value.reshape(-1).view(np.uint8) for value in beside if value.size]
    for name in sorted(dir(data)):
        if name.startswith("_") or name in _LEFT_OUT:
            continue
        value = getattr(data, name)
        if isinstance(value, np.ndarray) and value.size and start <= value.ctypes.data < start + size:
            views.append(value.reshape(-1).view(np.uint8))
    warnings = (data.warning.lastinfo, data.warning.number) if "warning" in present else ()
    return _Arrays(tuple(views), tuple(name for name in _NUMBERS if name in present), warnings)
