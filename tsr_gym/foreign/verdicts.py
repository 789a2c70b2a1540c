"""What was found out about an environment, remembered as long as it lives."""

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

FoundT = TypeVar("FoundT")


class Verdicts(Generic[FoundT]):
    """One finding per object, by identity, because foreign objects need not be hashable."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, FoundT]] = {}

    def of(self, thing: Any, find: Callable[[Any], FoundT]) -> FoundT:
        """Return the finding about an object, which is only looked for once."""
        known = self._found.get(id(thing))
        if known is None or known[0]() is not thing:
            known = self.remember(thing, find(thing))
        return known[1]

    def remember(self, thing: Any, finding: FoundT) -> tuple[Any, FoundT]:
        """Remember a finding about an object."""
        identity = id(thing)
        reference = weakref.ref(thing, lambda _: self._found.pop(identity, None))
        self._found[identity] = (reference, finding)
        return self._found[identity]
