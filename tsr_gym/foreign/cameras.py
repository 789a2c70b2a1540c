"""Cameras of Gymnasium's MuJoCo renderer: set up where the simulation stood when the first picture was drawn.

So two environments in the same state may show different pictures, unless their cameras are made alike.
"""

import sys
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

_NUMBERS = ("fixedcamid", "trackbodyid", "distance", "azimuth", "elevation", "orthographic")


class Camera(NamedTuple):
    """Where pictures are taken from.

    Attributes:
        mode: The render mode that it is for.
        kind: Free, tracking or fixed, as MuJoCo numbers it.
        lookat: The point that it looks at, in metres.
        numbers: Its other settings by name.
    """

    mode: str
    kind: int
    lookat: tuple[float, ...]
    numbers: tuple[tuple[str, float], ...]


def cameras_of(env: Any) -> tuple[Camera, ...]:
    """Return the cameras of an environment, but for that of a window, which belongs to whoever looks."""
    found = []
    for mode, viewer in sorted(_viewers_of(env).items()):
        camera = viewer.cam
        numbers = tuple((name, getattr(camera, name)) for name in _NUMBERS if name in dir(camera))
        found.append(Camera(mode, int(camera.type), tuple(camera.lookat.tolist()), numbers))
    return tuple(found)


def set_cameras(env: Any, cameras: tuple[Camera, ...]) -> None:
    """Set the cameras of an environment, and make the one that it renders with."""
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
    """Let an environment draw into, and in the end free, its own context of OpenGL.

    Gymnasium draws into the one made last and frees pictures in whichever is current, be they other environments'.
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
    # At the very end the display is gone, and all contexts with it.
    while left and not sys.is_finalizing():
        pictures, context = left.pop()
        context.make_current()
        pictures.free()
        context.free()


def _viewers_of(env: Any) -> dict[str, Any]:
    viewers = getattr(getattr(env, "mujoco_renderer", None), "_viewers", {})
    return {mode: viewer for mode, viewer in viewers.items() if mode != "human"}
