"""Hiding: poor play is imitated in short bursts until success is in a band."""

from collections.abc import Callable
from typing import Any

from tsr_gym.agents.episodes.play import Evaluation


def hide_skill(
    model: Any,
    burst: Callable[[float], None],
    measure: Callable[[], Evaluation],
    found: Evaluation,
    *,
    band: tuple[float, float],
    bursts: int,
    lr: float,
    least_valid: float = 0.0,
    note: Callable[[str], None],
) -> Evaluation:
    """Return how a model plays after as many bursts of poor imitation as its success needs to be in a band.

    A burst after which success is below the band, or too few answers have the wanted form, is taken back, and the next
    one has half the learning rate.

    Args:
        model: Changed in place.
        burst: Imitates poor play at a learning rate.
        measure: Says how the model plays.
        found: How it plays now.
        band: Lowest and highest success that is wanted.
        bursts: Most bursts.
        lr: Learning rate of the first.
        least_valid: Least share of valid answers.
        note: Told what is being done.
    """
    low, high = band
    for _ in range(bursts):
        if found.success <= high:
            break
        before = {name: value.clone() for name, value in model.state_dict().items()}
        burst(lr)
        after = measure()
        note(f"success {after.success:.3f}")
        if after.success < low or after.valid < least_valid:
            # Too far: go back and take smaller steps.
            model.load_state_dict(before)
            lr /= 2
        else:
            found = after
    if found.success > high:
        note(f"still above {high} after all steps of poor play: success {found.success:.3f}")
    return found
