"""Adapters: how each type of environment is read, put back and copied, and which adapter an environment gets."""

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from tsr_gym.errors import SnapshotError, shown
from tsr_gym.foreign.atari import AtariAdapter
from tsr_gym.foreign.attributes import AttributesState, capture, checked, compare, put_back, settings_of, twin_of
from tsr_gym.foreign.generators import place_generator
from tsr_gym.foreign.mujoco import MujocoAdapter
from tsr_gym.foreign.objects import SharedVerdicts, SnapshotEnv, Support, attributes_of, fresh, module_of
from tsr_gym.foreign.play import Means, flaw_of
from tsr_gym.foreign.recorder import ReplayAdapter, ReplayRecorder
from tsr_gym.random_stream import Drawn, is_position, position_of


class ProtocolState(NamedTuple):
    """The state that an environment declares, and the position of its generator."""

    settings: tuple[Any, ...]
    state: Any
    position: Drawn | None


class ProtocolAdapter:
    """Reads environments that implement `SnapshotEnv`."""

    def support(self, env: Any) -> Support:
        """Return ``"exact"``: the author promises it."""
        return Support("exact", f"{type(env).__name__} declares its state (env_state and set_env_state)")

    def read(self, env: Any) -> ProtocolState:
        """Return the result of `env_state` and the position of the generator."""
        generator = vars(env).get("_np_random")
        position = None if generator is None else position_of(generator)
        return ProtocolState(settings_of(env), env.env_state(), position)

    def check(self, env: Any, state: Any, seed: int | None) -> ProtocolState:
        """Return the state unless it belongs to other settings."""
        if not isinstance(state, ProtocolState):
            raise SnapshotError(f"wanted the result of {type(env).__name__}.env_state(), got {shown(state)}: damaged")
        compare(env, state.settings)
        if not (state.position is None or is_position(state.position)):
            raise SnapshotError(f"wanted the position of a generator, got {shown(state.position)}: damaged")
        return state

    def write(self, env: Any, state: ProtocolState, seed: int | None) -> None:
        """Pass the state to `set_env_state`, and set the generator."""
        env.set_env_state(state.state)
        place_generator(env, state.position, seed)

    def copy(self, env: Any) -> Any:
        """Return an environment made with the same arguments; if they are unknown, a proved copy.

        Raises:
            SnapshotError: The arguments are unknown and copies play different episodes: they may share the world.
        """
        try:
            return fresh(env)
        except SnapshotError as unknown:
            state = self.read(env)
            flaw = flaw_of_copies(env)
            if flaw is None:
                return twin_of(env)
            # The proof may have changed objects that copies share with the original.
            self.write(env, state, None)
            raise SnapshotError(f"{unknown}; a copy is not exact either: {flaw}") from unknown


_GOOD = "its attributes are copied, and copies were seen to play the same episodes"
_MEANS = Means(capture, lambda env, state: put_back(env, state, None), lambda env: twin_of(env, unseen=True))


_PROOFS: SharedVerdicts[str | None] = SharedVerdicts()


def _flaw(env: Any) -> str | None:
    return flaw_of(env, _MEANS)


def flaw_of_copies(env: Any) -> str | None:
    """Return why copied attributes are no exact copy of an environment; None if copies played the same episodes."""
    # An environment without a generator was probably not reset yet, so the verdict about this object may still change.
    unreset = attributes_of(env).get("_np_random") is None
    return _PROOFS.anew(env, _flaw) if unreset else _PROOFS.of(env, _flaw)


class DeepcopyAdapter:
    """Reads environments by their attributes, after a proof that is done once for environments with equal arguments."""

    def support(self, env: Any) -> Support:
        """Return ``"deepcopy"`` if the proof succeeds, ``"none"`` if not."""
        flaw = flaw_of_copies(env)
        return Support("deepcopy", _GOOD) if flaw is None else Support("none", flaw)

    def read(self, env: Any) -> AttributesState:
        """Return the attributes, after the proof."""
        flaw = _PROOFS.of(env, _flaw)
        if flaw is not None:
            raise SnapshotError(f"{flaw}. Call tsr_gym.env_support(env) to see the alternatives")
        return capture(env)

    def check(self, env: Any, state: Any, seed: int | None) -> AttributesState:
        """Return the attributes if they fit the environment."""
        return checked(env, state)

    def write(self, env: Any, state: AttributesState, seed: int | None) -> None:
        """Set the environment's attributes to copies."""
        put_back(env, state, seed)

    def copy(self, env: Any) -> Any:
        """Return another environment with copied attributes."""
        return twin_of(env)


class Adapter(Protocol):
    """The interface to environments of one type. An adapter holds no environment."""

    def support(self, env: Any) -> Support:
        """Return the support of an environment, without changing it."""

    def read(self, env: Any) -> Any:
        """Return the state of an environment as an immutable value.

        Raises:
            SnapshotError: There is no state yet, or it cannot be read exactly.
        """

    def check(self, env: Any, state: Any, seed: int | None) -> Any:
        """Return the state of a layer in the form that `write` takes.

        Raises:
            SnapshotError: The state does not fit the environment, or is damaged.
        """

    def write(self, env: Any, state: Any, seed: int | None) -> None:
        """Continue from a state that `check` returned, with its random numbers or, given a seed, with new ones."""

    def copy(self, env: Any) -> Any:
        """Return another environment with the same settings, in any state.

        Raises:
            SnapshotError: None can be made.
        """


REPLAY = ReplayAdapter()
DEEPCOPY = DeepcopyAdapter()
# Adapters by the name of an ancestor class, so that the libraries need not be imported.
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
        if adapter := _BY_CLASS.get(f"{module_of(ancestor)}:{ancestor.__qualname__}"):
            return adapter
    return DEEPCOPY


def adapter_of(env: Any) -> Adapter:
    """Return the adapter of an environment without wrappers, or of a recorder."""
    cls: Any = type(env)
    return _by_class(cls)


def kind_of(env: Any) -> str:
    """Return the name of an environment's type in snapshots."""
    if isinstance(env, ReplayRecorder):
        return f"{kind_of(env.env)} (replayed)"
    return f"{module_of(type(env))}:{type(env).__qualname__}"
