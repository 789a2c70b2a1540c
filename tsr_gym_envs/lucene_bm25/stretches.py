"""Reading passages, a stretch at a time: as many as are turned into one run in memory."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from tsr_gym.errors import InvalidCorpus
from tsr_gym_envs.lucene_bm25.analysis import term_of
from tsr_gym_envs.lucene_bm25.words import split_words

# A stretch ends with the passage that brings it to this many words, or to this many different ones.
MAX_WORDS = 1 << 24
MAX_VOCABULARY = 1 << 20
_REPORT_EVERY = 10_000

# Called with the number of passages read so far.
Progress = Callable[[int], None]


class Stretch(NamedTuple):
    """Some passages in a row.

    Attributes:
        first: Number of the first passage.
        ids: Their ids, UTF-8.
        terms: Their terms by number.
        tokens: The passages' terms as numbers in order; -1 stands for a stop word.
        ends: Where the passages end in `tokens`.
    """

    first: int
    ids: list[bytes]
    terms: list[str]
    tokens: "array[int]"
    ends: "array[int]"


class _Vocabulary(dict[str, int]):
    """From words as they stand in texts to numbers of terms."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        term = term_of(word)
        number = self.terms.setdefault(term, len(self.terms)) if term else -1
        self[word] = number
        return number


def stretches(
    passages: Iterable[tuple[str, str]],
    digest: blake2b,
    progress: Progress | None = None,
    max_words: int = MAX_WORDS,
) -> Iterator[Stretch]:
    """Yield the passages stretch by stretch, and update the digest with every id and text.

    Raises:
        InvalidCorpus: An id or a text is no string.
    """
    source, number = iter(passages), 0
    while True:
        vocabulary = _Vocabulary()
        stretch = Stretch(number, [], [], array("i"), array("q"))
        for passage_id, text in source:
            if not (isinstance(passage_id, str) and isinstance(text, str)):
                raise InvalidCorpus(f"passage {number}: wanted an id and a text, got {passage_id!r} and {text!r}")
            name, data = passage_id.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass")
            digest.update(b"%d %d %b%b" % (len(name), len(data), name, data))
            stretch.ids.append(name)
            stretch.tokens.extend(map(vocabulary.__getitem__, split_words(text)))
            stretch.ends.append(len(stretch.tokens))
            number += 1
            if progress is not None and number % _REPORT_EVERY == 0:
                progress(number)
            if len(stretch.tokens) >= max_words or len(vocabulary) >= MAX_VOCABULARY:
                break
        if not stretch.ids:
            break
        stretch.terms.extend(vocabulary.terms)
        yield stretch
    if progress is not None and number % _REPORT_EVERY:
        progress(number)
