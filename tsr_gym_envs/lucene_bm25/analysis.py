"""Text to terms, as Anserini's DefaultEnglishAnalyzer does.

Words by Lucene's tokenizer, without possessive 's, in lower case, without Lucene's 33 stop words, stemmed by Porter.
Invariant: a word's term depends on nothing but the word.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, zip_longest

import regex  # type: ignore[import-untyped]
import Stemmer

# Lucene's scanner sees no further than this, in UTF-16 code units: longer words are cut.
MAX_UNITS = 255

# The rules restricted to plain ASCII; `_` joins everything, but is no word alone.
_ASCII_WORD = re.compile(
    r"(?:(?<!_)_+)?[A-Za-z0-9]\w*(?:(?:(?<=[A-Za-z])[.:'](?=[A-Za-z])|(?<=[0-9])[.,;'](?=[0-9]))\w+)*", re.ASCII
)
# Longer pieces of text without a blank rarely repeat.
_MAX_CACHED = 64
_FOREIGN = re.compile(r"[^\x00-\x7f]")

# Lucene knows the characters of Unicode 12.1. These have moved to another class since then.
_FORMAT_THEN = r"\u0600-\u0605\u06DD\u070F\u08E2\U000110BD\U000110CD"
_NO_LETTER_THEN = r"\u00B8\u02E5-\u02EB\u055A\u055F\u058A\u19DA\uA708-\uA716\U00016FE2"
_MID_DIGIT_THEN = r"\uFE10\uFE14"
_PICTOGRAPH_THEN = (
    r"\u2388\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2763-\u2767\U0001F000-\U0001F0FF"
    r"\U0001F10D-\U0001F10F\U0001F12F\U0001F16C-\U0001F171\U0001F1AD-\U0001F1E5\U0001F249-\U0001F3FA"
    r"\U0001F400-\U0001F53D\U0001F546-\U0001F64F\U0001F680-\U0001F6FF\U0001F774-\U0001F77F\U0001F7D5-\U0001F7FF"
    r"\U0001F80C-\U0001F80F\U0001F848-\U0001F84F\U0001F85A-\U0001F85F\U0001F888-\U0001F88F\U0001F8AE-\U0001F8FF"
    r"\U0001F90C-\U0001F93A\U0001F93C-\U0001F945\U0001F947-\U0001FFFD"
)


def _grammar() -> str:
    """Return Lucene's grammar, in which the longest match at a place wins."""
    format_ = rf"\p{{WB=Format}}{_FORMAT_THEN}"
    extended = rf"[\p{{WB=Extend}}{format_}\p{{WB=ZWJ}}]*+"
    hebrew = rf"\p{{WB=Hebrew_Letter}}{extended}"
    quote, quotes = rf"\p{{WB=Single_Quote}}{extended}", rf"\p{{WB=Double_Quote}}{extended}"
    letter = rf"[[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]--[{_NO_LETTER_THEN}{_FORMAT_THEN}]]{extended}"
    mid_letter = rf"[[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]--[\u055F]]{extended}"
    digit = rf"[[\p{{WB=Numeric}}\uFF10-\uFF19]--[\u19DA{_FORMAT_THEN}]]{extended}"
    mid_digit = rf"[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}{_MID_DIGIT_THEN}]{extended}"
    joiner = rf"\p{{WB=ExtendNumLet}}{extended}"
    # A Hebrew letter before a quotation mark may begin one of the two Hebrew rules.
    free_letter = rf"(?!{hebrew}(?:{quote}|{quotes}{hebrew})){letter}"
    letters = rf"{free_letter}(?:{mid_letter}{letter}|{free_letter})*+"
    digits = rf"{digit}(?:{mid_digit}{digit}|{digit})*+"
    katakana = rf"(?:\p{{WB=Katakana}}{extended})++"
    unit = rf"(?:{katakana}|(?:{hebrew}{quotes}{hebrew}|{hebrew}{quote}|{digits}|{letters})++)"
    # Within a row of joiners there is no beginning, or long rows would be read again from each of them.
    word = rf"(?:(?<!\p{{WB=ExtendNumLet}})(?:{joiner})++)?{unit}(?:(?:{joiner})++{unit})*+(?:{joiner})*+"
    no_pictograph = r"[0-9#*\p{Emoji_Modifier}\p{WB=Regional_Indicator}]"
    pictograph = rf"[\p{{Extended_Pictographic}}{_PICTOGRAPH_THEN}[\p{{Emoji}}--{no_pictograph}]]"
    # The selectors of a presentation come last; a joiner before another pictograph belongs to the sequence.
    joiners = rf"\u200D{{0,{MAX_UNITS}}}+"
    follows = rf"(?:[[\p{{WB=Extend}}{format_}]--[\uFE0E\uFE0F]]|\u200D(?!{joiners}{pictograph}))*"
    sign = rf"(?:{joiners}{pictograph}{follows}\uFE0F?|\p{{Emoji_Modifier}}{follows})"
    emoji = rf"{sign}(?:[\U000E0020-\U000E007E]+\U000E007F|(?:\u200D{sign})*)"
    keycap = rf"[0-9#*]{follows}\uFE0F?\u20E3{follows}"
    flag = rf"(?:\p{{WB=Regional_Indicator}}{extended}){{2}}"
    run = rf"(?:[\p{{LB=Complex_Context}}\u19DA]{extended})++"
    single = rf"[[\p{{Script=Han}}\p{{Script=Hiragana}}]--[\U00016FE2]]{extended}"
    return "|".join((word, emoji, keycap, flag, run, single))


# POSIX is the regex package's name for the longest match.
_WORD = regex.compile(_grammar(), regex.VERSION1 | regex.POSIX)


def split_words(text: str) -> list[str]:
    """Return the words of a text in order, as they stand in it."""
    if text.isascii():
        words = _ASCII_WORD.findall(text)
    else:
        words = []
        start = 0
        while foreign := _FOREIGN.search(text, start):
            left = text.rfind(" ", start, foreign.start()) + 1 or start
            right = text.find(" ", foreign.end())
            right = len(text) if right < 0 else right
            words += _ASCII_WORD.findall(text, start, left)
            words += (
                _foreign_words(text[left:right]) if right - left <= _MAX_CACHED else _WORD.findall(text, left, right)
            )
            start = right
        words += _ASCII_WORD.findall(text, start)
    if max(map(len, words), default=0) > MAX_UNITS // 2:
        words = [piece for word in words for piece in _cut(word)]
    return words


@lru_cache(maxsize=1 << 16)
def _foreign_words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text))


def _cut(word: str) -> Iterator[str]:
    """Yield the words of a scanner that sees `MAX_UNITS` of a word at a time."""
    start = 0
    while start < len(word):
        end = _end_of_view(word, start)
        match = _WORD.match(word[start:end])
        if match:
            yield match.group()
        start += match.end() if match else 1


def _end_of_view(word: str, start: int) -> int:
    units = 0
    for place in range(start, len(word)):
        units += 1 + (word[place] > "\uffff")
        if units > MAX_UNITS:
            return place
    return len(word)


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
    """Return a word that `_DETAILS` matches after the steps for plural, past, -ing and -y, and the two new rules."""
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
