"""What came of a campaign, and the attack that each of its counts counts."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from traceback import format_exception
from typing import NamedTuple

MAX_FAULTS = 20


class Outcome(NamedTuple):
    """What came of one attack.

    Attributes:
        count: The field of `Counts` that it belongs to.
        what: What was done, and what it brought.
    """

    count: str
    what: str


@dataclass(frozen=True, slots=True)
class Counts:
    """What came of a campaign.

    Attributes:
        tried: Attacks.
        refused: Ended in the promised error, and nothing had changed.
        right: Were taken, and all was right all the same.
        wrong: Were taken and were not right, or had changed something when they were refused.
        crashed: Ended in another error, or ended the process.
        faults: What the first of the last two kinds were.
    """

    tried: int
    refused: int
    right: int
    wrong: int
    crashed: int
    faults: tuple[str, ...] = ()


def counted(outcomes: Iterable[Outcome]) -> Counts:
    """Return the counts of outcomes."""
    came = list(outcomes)
    counts = Counter(outcome.count for outcome in came)
    faults = [f"{one.count}: {one.what}" for one in came if one.count in ("wrong", "crashed")]
    numbers = [counts[name] for name in ("refused", "right", "wrong", "crashed")]
    assert sum(numbers) == len(came)
    return Counts(len(came), *numbers, tuple(faults[:MAX_FAULTS]))


def attacked(
    what: str,
    attack: Callable[[], bool],
    promised: type[Exception] | tuple[type[Exception], ...],
    unchanged: Callable[[], bool] = lambda: True,
) -> Outcome:
    """Return what came of an attack.

    Args:
        what: What is done.
        attack: Does it, and returns whether what it brought is right.
        promised: The errors that may refuse it.
        unchanged: Whether everything is as before, asked where it was refused.
    """
    try:
        return Outcome("right" if attack() else "wrong", what)
    except promised as error:
        return Outcome("refused" if unchanged() else "wrong", f"{what}: changed before {error}")
    except Exception as error:
        return Outcome("crashed", f"{what}: {''.join(format_exception(error))[-1500:]}")
