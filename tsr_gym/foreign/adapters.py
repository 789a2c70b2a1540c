"""Which kind of environment an environment is, and what every kind must be able to do."""

from functools import lru_cache
from typing import Any, Protocol

from tsr_gym.foreign.atari import AtariAdapter
from tsr_gym.foreign.deepcopied import DeepcopyAdapter
from tsr_gym.foreign.mujoco import MujocoAdapter
from tsr_gym.foreign.objects import module_of
from tsr_gym.foreign.protocol import ProtocolAdapter
from tsr_gym.foreign.recorder import ReplayRecorder
from tsr_gym.foreign.replayed import ReplayAdapter
from tsr_gym.foreign.support import SnapshotEnv, Support


class Adapter(Protocol):
    """How environments of one kind are read, put back and copied. Knows no single environment."""

    def support(self, env: Any) -> Support:
        """Return what can be promised of an environment, which is not disturbed."""

    def read(self, env: Any) -> Any:
        """Return the state of an environment as an immutable value.

        Raises:
            SnapshotError: It has none yet, or it cannot be read exactly.
        """

    def check(self, env: Any, state: Any, seed: int | None) -> Any:
        """Return a layer's state as `write` takes it.

        Raises:
            SnapshotError: `write` would not accept it.
        """

    def write(self, env: Any, state: Any, seed: int | None) -> None:
        """Continue from a state that `check` accepted, on its own random numbers or on those of a seed."""

    def copy(self, env: Any) -> Any:
        """Return another environment with the same settings, in any state.

        Raises:
            SnapshotError: There is no way to make one.
        """


REPLAY = ReplayAdapter()
DEEPCOPY = DeepcopyAdapter()
# Whose classes are known, by the class that theirs inherit from; nothing is imported for it.
_BY_CLASS: dict[str, Adapter] = {
    "ale_py.env:AtariEnv": AtariAdapter(),
    "gymnasium.envs.mujoco.mujoco_env:MujocoEnv": MujocoAdapter(),
}
_PROTOCOL = ProtocolAdapter()


@lru_cache(maxsize=256)
def _by_class(cls: Any) -> Adapter:
    if issubclass(cls, ReplayRecorder):
        return REPLAY
    if issubclass(cls, SnapshotEnv):
        return _PROTOCOL
    for ancestor in cls.__mro__:
        if known := _BY_CLASS.get(f"{module_of(ancestor)}:{ancestor.__qualname__}"):
            return known
    return DEEPCOPY


def adapter_of(env: Any) -> Adapter:
    """Return how an environment without wrappers, or a recorder, is read."""
    cls: Any = type(env)
    return _by_class(cls)


def kind_of(env: Any) -> str:
    """Return the name under which snapshots know an environment."""
    if isinstance(env, ReplayRecorder):
        return f"{kind_of(env.env)} (replayed)"
    return f"{module_of(type(env))}:{type(env).__qualname__}"
