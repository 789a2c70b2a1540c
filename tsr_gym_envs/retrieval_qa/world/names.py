"""Invented names from syllables and plain words: no real names, and no name contains another one."""

import re
import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files

import numpy as np

from tsr_gym.errors import GenerationFailed
from tsr_gym_envs.retrieval_qa.grading import normalise

MAX_TRIES = 1000
_THRICE = re.compile(r"(.)\1\1")


COINED_MIDDLE = ("", "", "a", "o", "i")
_LISTS = tomllib.loads((files(__package__) / "names.toml").read_text(encoding="utf-8"))
# The endings of companies' names by trade.
COMPANY_END: dict[str, tuple[str, ...]] = {
    trade: tuple(text.split()) for trade, text in _LISTS.pop("company_end").items()
}
# Syllables and words by what they make up.
_WORDS: dict[str, tuple[str, ...]] = {key: tuple(text.split()) for key, text in _LISTS.items()}
PLACE_MIDDLE = _WORDS["place_middle"]


def plural(noun: str) -> str:
    """Return the plural of one of the nouns.

    >>> plural("Lantern"), plural("Ferry"), plural("Journey"), plural("Compass")
    ('Lanterns', 'Ferries', 'Journeys', 'Compasses')
    """
    if noun.endswith("y") and noun[-2] not in "aeo":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


class NameBook:
    """Draw names that are new: none has been given before, and none stands as whole words within another.

    Args:
        rng: Where names are drawn from.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._names: set[str] = set()
        self._runs: set[str] = set()

    def person(self, is_female: bool, surname: str | None = None) -> str:
        """Return a person's name, with a surname of your choice where you have one."""
        end = "female" if is_female else "male"
        return self._new(
            lambda: f"{self._word('first')}{self._word(end)} {surname or self._pair('surname', 'surname_end')}"
        )

    def credit(self, name: str) -> str:
        """Return another form of a person's name: initials, or a short first name, with the surname."""
        first, _, surname = name.partition(" ")
        letters = "ABCDEFGHIJKLMNOPRSTVW"
        return self._new(lambda: f"{first[0]}. {self.one(letters)}. {surname}")

    def company(self, trade: str) -> tuple[str, str]:
        """Return a company's name and its short form."""
        short = self._new(lambda: self._word("coined") + self.one(COINED_MIDDLE) + self._word("coined_end"))
        return f"{short} {self.one(COMPANY_END[trade])}", short

    def river(self) -> tuple[str, str]:
        """Return a river's name and its short form."""
        short = self._new(lambda: self._place("water_end"))
        return f"{short} River", short

    def country(self) -> tuple[str, str]:
        """Return a country's name and its official style."""
        name = self._new(lambda: self._place("country_end", ("", "", "a", "o")))
        return name, f"the {self.one(('Republic', 'Kingdom', 'Federation', 'Commonwealth'))} of {name}"

    def of_kind(self, kind: str) -> str:
        """Return a name for any other kind of entity."""
        make: dict[str, Callable[[], str]] = {
            "film": self._title,
            "book": self._title,
            "album": self._title,
            "band": lambda: (
                f"{self.one(('The', 'The', ''))} {self._word('adjectives')} {plural(self._word('nouns'))}".strip()
            ),
            "city": lambda: self._place("city_end"),
            "mountain": lambda: f"Mount {self._place('peak_end', ('', *PLACE_MIDDLE))}",
            "lake": lambda: f"Lake {self._place('water_end', ('', *PLACE_MIDDLE))}",
            "university": self._university,
            "club": lambda: f"{self._hamlet()} {self.one(('Rovers', 'Athletic', 'Wanderers', 'United', 'Albion'))}",
            "nickname": lambda: f"the {self._word('adjectives')} {self._word('animals')}",
            "stadium": lambda: f"{self._hamlet()} {self.one(('Park', 'Arena', 'Ground', 'Field'))}",
            "museum": lambda: f"{self._hamlet()} {self.one(('Museum', 'Gallery', 'Collection', 'Museum of Art'))}",
            "bridge": lambda: f"{self._hamlet()} {self.one(('Bridge', 'Crossing', 'Viaduct'))}",
            "newspaper": lambda: (
                f"The {self._hamlet()} {self.one(('Courier', 'Gazette', 'Herald', 'Tribune', 'Post'))}"
            ),
            "ship": lambda: f"{self.one(('SS', 'MV'))} {self._thing()}",
            "festival": lambda: (
                f"{self._word('adjectives')} {self._word('nouns')} {self.one(('Festival', 'Days', 'Fair'))}"
            ),
        }
        return self._new(make[kind])

    def one(self, choices: Sequence[str]) -> str:
        """Return one of some texts."""
        return choices[int(self._rng.integers(len(choices)))]

    def _title(self) -> str:
        adjective = self._word("adjectives")
        nouns = _WORDS["nouns"]
        first, second = self._rng.choice(len(nouns), 2, replace=False)
        noun, other = nouns[first], nouns[second]
        patterns = (
            f"The {adjective} {noun}",
            f"{noun} of the {adjective} {other}",
            f"Beneath the {adjective} {noun}",
            f"When the {noun} Was {adjective}",
            f"{'An' if noun[0] in 'AEIOU' else 'A'} {noun} for {self._pair('first', 'female')}",
            f"{self._pair('first', 'male')} and the {adjective} {noun}",
            f"Letters from a {adjective} {noun}",
            f"The {noun} and the {other}",
        )
        return self.one(patterns)

    def _thing(self) -> str:
        return f"{self._word('adjectives')} {self._word('nouns')}"

    def _band(self) -> str:
        article = self.one(("The", "The", ""))
        return f"{article} {self._word('adjectives')} {plural(self._word('nouns'))}".strip()

    def _university(self) -> str:
        stem = self._pair("surname", "surname_end")
        return f"{stem} {self.one(('University', 'Institute of Technology', 'College', 'Polytechnic'))}"

    def _hamlet(self) -> str:
        return self._pair("place", "hamlet_end")

    def _word(self, key: str) -> str:
        return self.one(_WORDS[key])

    def _place(self, end: str, middles: tuple[str, ...] = PLACE_MIDDLE) -> str:
        return f"{self._word('place')}{self.one(middles)}{self._word(end)}"

    def _pair(self, start: str, end: str) -> str:
        # Three equal letters in a row become two: no word is spelt so.
        return _THRICE.sub(r"\1\1", self._word(start) + self._word(end))

    def _new(self, make: Callable[[], str]) -> str:
        for _ in range(MAX_TRIES):
            name = make()
            # A name within another name would make an exact-match answer ambiguous, so all runs of words are compared:
            # the new name must not be a run of an older one, nor any of its runs an older name.
            words = normalise(name).split()
            runs = {" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
            if " ".join(words) not in self._runs and runs.isdisjoint(self._names):
                self._names.add(" ".join(words))
                self._runs |= runs
                return name
        raise GenerationFailed(f"no new name in {MAX_TRIES} tries after {len(self._names)}; ask for fewer entities")
