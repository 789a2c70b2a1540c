"""Environments that are made of plain data: their attributes are copied, once copies were seen to play alike."""

from typing import Any

from tsr_gym.errors import SnapshotError
from tsr_gym.foreign.attributes import AttributesState, capture, checked, put_back, twin_of
from tsr_gym.foreign.objects import attributes_of
from tsr_gym.foreign.proof import Means, flaw_of
from tsr_gym.foreign.support import Support
from tsr_gym.foreign.verdicts import SharedVerdicts

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
