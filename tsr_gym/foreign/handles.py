"""What an environment holds that is not its state: windows, surfaces, clocks and other means of rendering."""

import re
from functools import lru_cache
from typing import Any

from tsr_gym.foreign.objects import module_of

_LIBRARIES = ("pyglet", "matplotlib", "tkinter", "glfw", "OpenGL", "moviepy", "imageio", "moderngl", "panda3d", "vtk")
_MODULES = ("gymnasium.envs.mujoco.mujoco_rendering", "gymnasium.utils.play", "mujoco.viewer", "mujoco.renderer")
_PYGAME = ("Surface", "Clock", "Font", "SysFont", "Sound", "Channel", "Window", "Renderer", "Texture", "PixelArray")
# What environments call them; such an attribute that is None is one that was not made yet.
_NAMES = re.compile(r"(^|_)(screen|window|surf|surface|clock|viewer|renderer|font|img|imgs|image|images|sprites?)$")
_MAX_DEPTH = 4
CONTAINERS = frozenset({list, tuple, dict})


@lru_cache(maxsize=512)
def is_handle_class(cls: Any) -> bool:
    """Return whether objects of a class are means of rendering."""
    module = module_of(cls)
    top = module.partition(".")[0]
    if top == "pygame":
        return cls.__name__ in _PYGAME
    return top in _LIBRARIES or module.startswith(_MODULES)


def is_handle(value: Any) -> bool:
    """Return whether an object is a means of rendering."""
    kind: Any = type(value)
    return is_handle_class(kind)


def holds_handles(value: Any, depth: int = 0) -> bool:
    """Return whether a value is a means of rendering, or a container of nothing but such."""
    kind = type(value)
    if kind in CONTAINERS:
        items = list(value.values()) if kind is dict else value
        return bool(items) and depth < _MAX_DEPTH and all(holds_handles(item, depth + 1) for item in items)
    return is_handle(value)


@lru_cache(maxsize=4096)
def names_handle(name: str) -> bool:
    """Return whether an attribute is called as means of rendering are."""
    return _NAMES.search(name) is not None
