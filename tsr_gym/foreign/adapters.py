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
    """What an environment says of itself, and where its generator stands."""

    settings: tuple[Any, ...]
    state: Any
    position: Drawn | None


class ProtocolAdapter:
    """Reads environments that implement `SnapshotEnv`."""

    def support(self, env: Any) -> Support:
        """Return exact: the author says so."""
        return Support("exact", f"{type(env).__name__} says what its state is (env_state and set_env_state)")

    def read(self, env: Any) -> ProtocolState:
        """Return what the environment says, and the position of its generator."""
        generator = vars(env).get("_np_random")
        position = None if generator is None else position_of(generator)
        return ProtocolState(settings_of(env), env.env_state(), position)

    def check(self, env: Any, state: Any, seed: int | None) -> ProtocolState:
        """Return the state unless it belongs to other settings."""
        if not isinstance(state, ProtocolState):
            raise SnapshotError(f"wanted what {type(env).__name__}.env_state() returned, got {shown(state)}: damaged")
        compare(env, state.settings)
        if not (state.position is None or is_position(state.position)):
            raise SnapshotError(f"no generator stands at {shown(state.position)}: damaged")
        return state

    def write(self, env: Any, state: ProtocolState, seed: int | None) -> None:
        """Hand the state to the environment, and set its generator."""
        env.set_env_state(state.state)
        place_generator(env, state.position, seed)

    def copy(self, env: Any) -> Any:
        """Return an environment that was made in the same way, or else has copied attributes, after a proof.

        Raises:
            SnapshotError: Nobody knows how it was made, and copies do not play alike: what they share may be the world.
        """
        try:
            return fresh(env)
        except SnapshotError as unknown:
            state = self.read(env)
            flaw = flaw_of_copies(env)
            if flaw is None:
                return twin_of(env)
            # The proof may have played with what copies share.
            self.write(env, state, None)
            raise SnapshotError(f"{unknown}; nor can it be copied: {flaw}") from unknown


_GOOD = "its attributes are copied, and copies of it were seen to play alike"
_MEANS = Means(capture, lambda env, state: put_back(env, state, None), lambda env: twin_of(env, unseen=True))


_PROOFS: SharedVerdicts[str | None] = SharedVerdicts()


def _flaw(env: Any) -> str | None:
    return flaw_of(env, _MEANS)


def flaw_of_copies(env: Any) -> str | None:
    """Return why an environment cannot be copied by its attributes, None where copies were seen to play alike."""
    # An environment without a generator was not reset yet, as far as anyone can tell, and may still change.
    unreset = attributes_of(env).get("_np_random") is None
    return _PROOFS.anew(env, _flaw) if unreset else _PROOFS.of(env, _flaw)


class DeepcopyAdapter:
    """Reads environments by their attributes, after a proof that is done once for all that were made alike."""

    def support(self, env: Any) -> Support:
        """Return deepcopy where the proof holds, none where it does not."""
        flaw = flaw_of_copies(env)
        return Support("deepcopy", _GOOD) if flaw is None else Support("none", flaw)

    def read(self, env: Any) -> AttributesState:
        """Return the attributes, after the proof."""
        flaw = _PROOFS.of(env, _flaw)
        if flaw is not None:
            raise SnapshotError(f"{flaw}. Call tsr_gym.env_support(env) to see what helps")
        return capture(env)

    def check(self, env: Any, state: Any, seed: int | None) -> AttributesState:
        """Return the attributes if they fit."""
        return checked(env, state)

    def write(self, env: Any, state: AttributesState, seed: int | None) -> None:
        """Give the environment copies of the attributes."""
        put_back(env, state, seed)

    def copy(self, env: Any) -> Any:
        """Return another environment with copied attributes."""
        return twin_of(env)


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
