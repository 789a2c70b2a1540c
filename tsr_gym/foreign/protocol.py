"""Environments whose authors promise their state themselves: `env_state` and `set_env_state`."""

from typing import Any, NamedTuple

from tsr_gym.errors import SnapshotError, shown
from tsr_gym.foreign.attributes import twin_of
from tsr_gym.foreign.deepcopied import flaw_of_copies
from tsr_gym.foreign.fresh import fresh
from tsr_gym.foreign.noise import place_generator
from tsr_gym.foreign.settings import compare, settings_of
from tsr_gym.foreign.support import Support
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
