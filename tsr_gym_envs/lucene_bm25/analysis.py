"""Text to terms, as Anserini's DefaultEnglishAnalyzer does.

Words, without possessive 's, in lower case, without Lucene's 33 stop words, stemmed by Porter. Invariant: a word's term
depends on nothing but the word.
"""

import re
from functools import lru_cache
from itertools import chain, zip_longest

import Stemmer

from tsr_gym_envs.lucene_bm25.words import split_words

_LUCENES_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_LUCENES_STOP_WORDS.split())
_APOSTROPHES = "'\u2019\uff07"
# Words that Snowball's first step treats in another way, or its second because of what the first makes of them.
_DETAILS = re.compile(r"(?:bl|log)(?:[iy](?:|s|ed|eds|ing|ings)|ies)\Z|([^aeioubdfglmnprstz])\1(?:ed|eds|ing|ings)\Z")
_WIDE = re.compile("[\U00010000-\U0010ffff]")
# Letters that stand in no word.
_TWO_LETTERS = "\ue000\ue001"
_SNOWBALL = Stemmer.Stemmer("porter", 0)


def analyse(text: str) -> list[str]:
    """Return the terms of a text in order, repetitions included.

    Examples:
        >>> analyse("The Ponies' owner's 3.5mm wi-fi")
        ['poni', 'owner', '3.5mm', 'wi', 'fi']
    """
    return [term for word in split_words(text) if (term := term_of(word))]


@lru_cache(maxsize=1 << 16)
def term_of(word: str) -> str:
    """Return the term of a word, empty for a stop word."""
    if word[-1] in "sS" and word[-2:-1] in _APOSTROPHES and len(word) > 1:
        word = word[:-2]
    word = _lower(word)
    return "" if word in STOP_WORDS else stem(word)


def stem(word: str) -> str:
    """Return the stem of a word in lower case as Porter's own programs compute it.

    Snowball's Porter stemmer does it but for three details: it keeps some double consonants, and knows the published
    rules without -bli to -ble and -logi to -log. Its first step does nothing to a word that has been through ours.
    """
    if not word.isascii() and (wide := _WIDE.findall(word)):
        # Java sees two letters here, which are consonants to Porter.
        stemmed = stem(_WIDE.sub(_TWO_LETTERS, word))
        return "".join(chain.from_iterable(zip_longest(stemmed.split(_TWO_LETTERS), wide, fillvalue="")))
    if len(word) <= 2:
        return word
    return str(_SNOWBALL.stemWord(_first_step(word) if _DETAILS.search(word) else word))


def _first_step(word: str) -> str:
    """Return what becomes of a word that `_DETAILS` matches by plural, past, -ing and -y, and by the two new rules."""
    if word.endswith("s"):
        word = word[:-2] if word.endswith("ies") else word[:-1]
    base = word.removesuffix("ed").removesuffix("ing")
    if base != word and "v" in _sounds(base):
        doubled = base[-1] == base[-2] and _sounds(base)[-1] == "c"
        word = base[:-1] if doubled else base
    if word.endswith("y") and "v" in _sounds(word[:-1]):
        word = word[:-1] + "i"
    if word.endswith("bli") and "vc" in _sounds(word[:-3]):
        return word[:-1] + "e"
    if word.endswith("logi") and "vc" in _sounds(word[:-4]):
        return word[:-1]
    return word


def _sounds(word: str) -> str:
    """Return `v` for each vowel and `c` for each other letter; `y` is a vowel after a consonant."""
    sounds = ""
    for letter in word:
        sounds += "v" if letter in "aeiou" or (letter == "y" and sounds.endswith("c")) else "c"
    return sounds


def _lower(word: str) -> str:
    """Return the word in lower case, letter by letter as Java does: no final sigma, and one letter for a dotted I."""
    return word.lower() if word.isascii() else "".join(letter.lower()[0] for letter in word)
