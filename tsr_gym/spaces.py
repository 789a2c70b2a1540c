"""Spaces for text that a language model writes or reads."""

import multiprocessing
import string
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Text, flatten, flatten_space, unflatten
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from gymnasium.wrappers.utils import create_zero_array

from tsr_gym.ranges import check_counts

# Most bytes of a text in shared memory. The memory is allocated for every environment, used or not.
MAX_SHARED = 1 << 20
_SIZE = 8
# The first number that no character has.
PADDING = sys.maxunicode + 1
_JUNK = f"{string.printable}√é漢🙂"


class FreeText(Text):
    r"""All Unicode strings of up to `max_length` characters.

    A `Text` of Gymnasium, so that its clients know how to store one, but with every character and with the empty text.
    Gymnasium's `AsyncVectorEnv` returns the same wrong string forever if observations are its own `Text` in shared
    memory; texts of this space are read from shared memory after each step. The alphabet that `characters` reports is
    that of arbitrary samples. Flattened, a text is the numbers of its characters, filled up with `PADDING`.

    Args:
        max_length: Longest string, in characters.
        words: The words that `sample` joins; without them, `sample` returns arbitrary text.
        separator: The text between the words of a sample.
        max_words: Most words in a sample.
        seed: Seed of `sample`.

    >>> space = FreeText(20, words=("Up", "Down"), max_words=2, seed=1)
    >>> space.sample() in space
    True
    """

    def __init__(
        self,
        max_length: int,
        *,
        words: Sequence[str] = (),
        separator: str = " || ",
        max_words: int = 1,
        seed: int | None = None,
    ) -> None:
        check_counts(max_length=max_length, max_words=max_words)
        super().__init__(max_length, min_length=0, charset=_JUNK, seed=seed)
        self.words = tuple(words)
        self.separator = separator
        self.max_words = max_words

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Return a random string.

        Raises:
            ValueError: A mask or a probability was given; free text has neither.
        """
        if mask is not None or probability is not None:
            raise ValueError("FreeText has no masks or probabilities: call sample() without them")
        if self.words:
            count = int(self.np_random.integers(1, self.max_words + 1))
            picks = self.np_random.integers(len(self.words), size=count)
            return self.separator.join(self.words[pick] for pick in picks)[: self.max_length]
        count = int(self.np_random.integers(0, min(64, self.max_length) + 1))
        return "".join(_JUNK[pick] for pick in self.np_random.integers(len(_JUNK), size=count))

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string that is short enough."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"FreeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreeText) and (self.max_length, self.words, self.separator, self.max_words) == (
            other.max_length,
            other.words,
            other.separator,
            other.max_words,
        )

    __hash__ = None  # type: ignore[assignment]


@flatten_space.register(FreeText)
def _numbers_of_characters(space: FreeText) -> Box:
    return Box(0, PADDING, (space.max_length,), np.int32)


@flatten.register(FreeText)
def _flattened(space: FreeText, x: str) -> np.ndarray[Any, Any]:  # type: ignore[misc]
    numbers = np.full(space.max_length, PADDING, np.int32)
    numbers[: len(x)] = np.frombuffer(x.encode("utf-32-le", "surrogatepass"), np.int32)
    return numbers


@unflatten.register(FreeText)
def _unflattened(space: FreeText, x: np.ndarray[Any, Any]) -> str:  # type: ignore[misc]
    return x[x < PADDING].astype("<i4").tobytes().decode("utf-32-le", "surrogatepass")


@create_zero_array.register(FreeText)
def _empty_text(space: FreeText) -> str:  # type: ignore[misc]
    """Return the padding of Gymnasium's frame stacks and delays."""
    return ""


class _SharedTexts(Sequence[str]):
    """The present texts in shared memory. A deep copy, which `AsyncVectorEnv` returns, is a tuple of strings.

    Each text has a row: its number of bytes, and the bytes.
    """

    def __init__(self, space: FreeText, memory: Any, num: int) -> None:
        self._rows, self._width, self._num = memoryview(memory).cast("B"), _width(space), num

    def __len__(self) -> int:
        return self._num

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return tuple(self)[number]
        start = self._width * range(self._num)[number] + _SIZE
        size = int.from_bytes(self._rows[start - _SIZE : start], "little")
        return bytes(self._rows[start : start + size]).decode("utf-8", "surrogatepass")

    def __deepcopy__(self, memo: Any) -> tuple[str, ...]:
        return tuple(self)


def _width(space: FreeText) -> int:
    return _SIZE + min(4 * space.max_length, MAX_SHARED)


@create_shared_memory.register(FreeText)
def _share_texts(space: FreeText, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.RawArray("B", n * _width(space))


@read_from_shared_memory.register(FreeText)
def _shared_texts(space: FreeText, shared_memory: Any, n: int = 1) -> _SharedTexts:
    return _SharedTexts(space, shared_memory, n)


@write_to_shared_memory.register(FreeText)
def _write_shared_text(space: FreeText, index: int, value: str, shared_memory: Any) -> None:
    data, width = value.encode("utf-8", "surrogatepass"), _width(space)
    if len(data) > width - _SIZE:
        raise ValueError(
            f"wanted a text of at most {width - _SIZE} bytes in shared memory, got {len(data)}: pass "
            "vector_kwargs={'shared_memory': False} to gym.make_vec, or shared_memory=False to AsyncVectorEnv"
        )
    rows = memoryview(shared_memory).cast("B")
    start = width * index + _SIZE
    rows[start - _SIZE : start] = len(data).to_bytes(_SIZE, "little")
    rows[start : start + len(data)] = data
