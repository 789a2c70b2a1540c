"""What was found out about an environment, remembered as long as it lives, and shared with those made alike."""

import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, Generic, TypeVar

from tsr_gym.codec import digest
from tsr_gym.errors import SnapshotError

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


def recipe_of(env: Any) -> tuple[Any, ...] | None:
    """Return what environments of a class have in common if they were made alike, None where nobody can tell.

    Nobody can of an environment without a spec, or of one that was given objects, which may be anything.
    """
    spec = env.spec
    if spec is None or not isinstance(spec.entry_point, str | type | FunctionType):
        return None
    try:
        kwargs = digest({name: item for name, item in spec.kwargs.items() if name != "render_mode"})
    except SnapshotError:
        return None
    return spec.id, spec.entry_point, kwargs


class SharedVerdicts(Generic[FoundT]):
    """One finding for all environments of a class that were made alike, and one for every other."""

    def __init__(self) -> None:
        self._single: Verdicts[FoundT] = Verdicts()
        self._by_class: Verdicts[dict[Any, FoundT]] = Verdicts()

    def of(self, env: Any, find: Callable[[Any], FoundT]) -> FoundT:
        """Return the finding about an environment; only the first of its kind is looked into."""
        return self._single.of(env, lambda env: self.anew(env, find))

    def anew(self, env: Any, find: Callable[[Any], FoundT]) -> FoundT:
        """Return the finding about an environment that may still change: it is remembered of its kind alone."""
        recipe = recipe_of(env)
        if recipe is None:
            return find(env)
        found = self._by_class.of(type(env), lambda _: {})
        if recipe not in found:
            found[recipe] = find(env)
        return found[recipe]
