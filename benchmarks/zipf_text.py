"""Seeded passages in a made-up language with the statistics of encyclopedia text, for corpora of any size.

A quarter of the words are English stop words; the others follow Zipf's law with an endless tail, so that the vocabulary
grows with the corpus. A passage keeps to a topic: some of its words come again and again.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

STOP_WORDS = [
    "the",
    "of",
    "and",
    "in",
    "to",
    "a",
    "is",
    "was",
    "as",
    "for",
    "by",
    "with",
    "it",
    "on",
    "that",
    "be",
    "at",
    "are",
    "an",
    "this",
]
P_STOP = 0.25
P_TOPIC = 0.2
# Of Zipf's law: frequency ~ 1 / (rank + SHIFT) ** EXPONENT.
EXPONENT, SHIFT, RANKS = 1.35, 90.0, 20_000_000
AT_A_TIME = 4096


@lru_cache(maxsize=1 << 20)
def word(rank: int) -> str:
    """Return the word of a rank: frequent words are short."""
    letters = ""
    while True:
        rank, syllable = divmod(rank, 85)
        letters += "bcdfghklmnprstvwz"[syllable // 5] + "aeiou"[syllable % 5]
        if rank == 0:
            return letters + "nrstlm"[len(letters) % 6]
        rank -= 1


def ranks(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Draw ranks by Zipf's law."""
    low, high = SHIFT ** (1 - EXPONENT), (RANKS + SHIFT) ** (1 - EXPONENT)
    return ((low + rng.random(size) * (high - low)) ** (1 / (1 - EXPONENT)) - SHIFT).astype(np.int64)


def passages(num: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of passages of 100 words on average; a longer corpus begins with the shorter one of its seed."""
    rng = np.random.default_rng(seed)
    for first in range(0, num, AT_A_TIME):
        lengths = np.clip(rng.normal(100, 25, AT_A_TIME), 20, 250).astype(int)
        ends = np.cumsum(lengths)
        drawn = ranks(rng, int(ends[-1]))
        kinds = rng.random(drawn.size)
        picks = rng.integers(0, 1 << 30, drawn.size)
        for number in range(min(AT_A_TIME, num - first)):
            start, end = ends[number] - lengths[number], ends[number]
            topic = drawn[start : start + 8]
            own = np.where(kinds[start:end] < P_STOP + P_TOPIC, topic[picks[start:end] % topic.size], drawn[start:end])
            words = [word(rank) for rank in own.tolist()]
            for place in np.flatnonzero(kinds[start:end] < P_STOP).tolist():
                words[place] = STOP_WORDS[int(picks[start + place]) % len(STOP_WORDS)]
            yield str(first + number), " ".join(words)


def queries(num: int, corpus: Path, seed: int = 1, fewest: int = 4, most: int = 9) -> list[str]:
    """Return queries of words that stand together in a passage of a corpus file, stop words left out."""
    rng = np.random.default_rng(seed)
    found: list[str] = []
    with open(corpus, "rb") as file:
        length = file.seek(0, 2)
        while len(found) < num:
            file.seek(int(rng.integers(0, length)))
            file.readline()
            line = file.readline()
            if line:
                words = [word for word in json.loads(line)["contents"].split() if word not in STOP_WORDS]
                size = min(int(rng.integers(fewest, most + 1)), len(words))
                found.append(" ".join(rng.choice(words, size, replace=False)))
    return found


def write_corpus(path: Path, num: int, seed: int = 0) -> None:
    """Write a corpus as JSON lines of id and contents."""
    with open(path, "w", encoding="utf-8") as file:
        for name, text in passages(num, seed):
            file.write(f'{{"id": "{name}", "contents": "{text}"}}\n')
