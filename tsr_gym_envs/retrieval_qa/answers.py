"""Answers compared as SQuAD, Search-R1 and TSPO compare them: exact match, token F1, and occurrence in a passage."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

Match = Literal["boundary", "substring"]
MATCHES = ("boundary", "substring")

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
# Answers that token F1 takes as a whole; the first two also occur in any passage by chance.
_WHOLE = frozenset({"yes", "no", "noanswer"})
_ANYWHERE = frozenset({"yes", "no"})


def normalise(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and articles, words one blank apart (SQuAD).

    >>> normalise("The  Beatles' 'White Album'!")
    'beatles white album'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, golds: str | Sequence[str]) -> bool:
    """Return whether a prediction equals one of the golden answers once both are normalised; True counts as 1.

    >>> exact_match("the Beatles.", ["Beatles", "The Fab Four"])
    True
    """
    found = normalise(prediction)
    return any(found == gold for gold in _normalised(golds))


def token_f1(prediction: str, golds: str | Sequence[str]) -> float:
    """Return the F1 of the words that prediction and golden answer share, the best over all golden answers.

    Yes, no and "noanswer" earn only where both are the same. No shared word is 0, also where both are empty.

    >>> token_f1("the city of Paris", "Paris")
    0.5
    """
    found = normalise(prediction)
    return max((_f1(found, gold) for gold in _normalised(golds)), default=0.0)


def contains_answer(text: str, golds: str | Sequence[str], *, match: Match = "boundary") -> bool:
    """Return whether a golden answer occurs in a text, both normalised.

    Args:
        text: A passage, or several.
        golds: The golden answers.
        match: ``"boundary"`` wants the answer's words one after the other as whole words, and skips golden answers
            that prove nothing: yes, no, and those of at most one character. ``"substring"`` is Search-R1's rule: any
            substring and any golden answer, so that "no" is found in "nothing".

    >>> contains_answer("Nothing known.", "no"), contains_answer("Nothing known.", "no", match="substring")
    (False, True)
    """
    found, answers = normalise(text), _normalised(golds)
    if match == "substring":
        return any(gold in found for gold in answers)
    padded = f" {found} "
    return any(f" {gold} " in padded for gold in answers if len(gold) > 1 and gold not in _ANYWHERE)


def _normalised(golds: str | Sequence[str]) -> tuple[str, ...]:
    return _normalise_all((golds,) if isinstance(golds, str) else tuple(golds))


# Golden answers are compared with at every turn.
@lru_cache(maxsize=4096)
def _normalise_all(golds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(normalise, golds))


def _f1(found: str, gold: str) -> float:
    if found != gold and (found in _WHOLE or gold in _WHOLE):
        return 0.0
    ours, theirs = found.split(), gold.split()
    shared = sum((Counter(ours) & Counter(theirs)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(ours), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)
