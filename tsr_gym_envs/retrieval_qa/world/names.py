"""Invented names from syllables and plain words: nobody and nothing real, and never one name within another."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from tsr_gym.errors import GenerationFailed
from tsr_gym_envs.retrieval_qa.answers import normalise

MAX_TRIES = 1000
_THRICE = re.compile(r"(.)\1\1")


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


FIRST = words("Tav Ors Mer Kel Bran Sel Dar Ilv Nor Cas Hal Per Vel Jor Lin Rud Tam Yar Fen Gar Iso Cor Alb Ren")
MALE = words("in ric mund o en as or ek iel ander")
FEMALE = words("ela ina ara isse ona eth wyn ia une ika")
SURNAME = words(
    "Hal Brack Thorn Vesk Mor Ald Quen Strav Lin Pell Cass Dran Ember Frost Gild Harr Isk Jarn Kest Lorr Marl Nev "
    "Ost Pryd Rav Sorr Tull Ulv Varr Wend Yell Zor"
)
SURNAME_END = words(
    "vane wick more sen low ett ard ingham by croft dell er field gate holt ian kov lund man nor ovic quist ridge "
    "stead ton ulis worth"
)
PLACE = words(
    "Vel Tarn Ash Bel Cor Dun Eld Fal Gren Holl Ist Kal Lum Mar Nar Ores Pont Quar Ros Sel Tor Ulm Vas Wyn Yst Zel"
)
PLACE_MIDDLE = words("a e i o en ar or is")
CITY_END = words("mora dale burg stad polis vik mouth haven ford nova ry ley grad minster")
COUNTRY_END = words("venia land stan donia ria mark")
WATER_END = words("nel une sour beth gow lume rane va")
PEAK_END = words("sel horn dag bruk tor gis lak rim")
HAMLET_END = words("ebrook amoor wood crest ehurst acombe bank oley istow")
COINED = words("Nor Vex Lum Cal Tri Bor Sol Har Quil Meg Pax Ter Zan Ald Ful Kro Del Win Arb Ost Rho Sig")
COINED_MIDDLE = ("", "", "a", "o", "i")
COINED_END = words("dex ona ivo atec ella arc unda ix ovar mont elis ora eco ran")
ADJECTIVES = words(
    "Pale Silent Hidden Broken Golden Distant Hollow Patient Crooked Burning Frozen Wandering Borrowed Velvet "
    "Restless Bitter Gentle Scarlet Weathered Forgotten Northern Midnight Painted Sleeping Drifting Copper Shallow "
    "Narrow"
)
NOUNS = words(
    "Lantern Harbour Orchard Mirror River Winter Garden Station Letter Shadow Island Clock Bridge Sparrow Summer "
    "Piano Window Compass Meadow Cinema Lighthouse Journey Anchor Market Thimble Feather Carousel Horizon Cellar "
    "Ladder Violin Ferry Candle Kingdom Balcony Courtyard Telegram Umbrella Almanac Vineyard"
)
ANIMALS = words("Herons Foxes Otters Ravens Badgers Hornets Kestrels Stags Wolves Magpies Pikes Lynxes")
COMPANY_END = {
    "film studio": ("Pictures", "Films", "Studios"),
    "record label": ("Records", "Recordings", "Sound"),
    "publishing house": ("Press", "Books", "Verlag"),
    "shipyard": ("Shipyards", "Marine", "Slipways"),
    "toy maker": ("Toys", "Games", "Playthings"),
    "food company": ("Foods", "Mills", "Dairies"),
    "machine builder": ("Motors", "Instruments", "Engines"),
}


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
        ends = FEMALE if is_female else MALE
        return self._new(lambda: f"{self.one(FIRST)}{self.one(ends)} {surname or self._pair(SURNAME, SURNAME_END)}")

    def credit(self, name: str) -> str:
        """Return another form of a person's name: initials, or a short first name, with the surname."""
        first, _, surname = name.partition(" ")
        letters = "ABCDEFGHIJKLMNOPRSTVW"
        return self._new(lambda: f"{first[0]}. {self.one(letters)}. {surname}")

    def company(self, trade: str) -> tuple[str, str]:
        """Return a company's name and its short form."""
        short = self._new(lambda: self.one(COINED) + self.one(COINED_MIDDLE) + self.one(COINED_END))
        return f"{short} {self.one(COMPANY_END[trade])}", short

    def river(self) -> tuple[str, str]:
        """Return a river's name and its short form."""
        short = self._new(lambda: self._place(WATER_END))
        return f"{short} River", short

    def country(self) -> tuple[str, str]:
        """Return a country's name and its official style."""
        name = self._new(lambda: self._place(COUNTRY_END, ("", "", "a", "o")))
        return name, f"the {self.one(('Republic', 'Kingdom', 'Federation', 'Commonwealth'))} of {name}"

    def of_kind(self, kind: str) -> str:
        """Return a name for any other kind of entity."""
        make: dict[str, Callable[[], str]] = {
            "film": self._title,
            "book": self._title,
            "album": self._title,
            "band": lambda: f"{self.one(('The', 'The', ''))} {self.one(ADJECTIVES)} {plural(self.one(NOUNS))}".strip(),
            "city": lambda: self._place(CITY_END),
            "mountain": lambda: f"Mount {self._place(PEAK_END, ('', *PLACE_MIDDLE))}",
            "lake": lambda: f"Lake {self._place(WATER_END, ('', *PLACE_MIDDLE))}",
            "university": self._university,
            "club": lambda: f"{self._hamlet()} {self.one(('Rovers', 'Athletic', 'Wanderers', 'United', 'Albion'))}",
            "nickname": lambda: f"the {self.one(ADJECTIVES)} {self.one(ANIMALS)}",
            "stadium": lambda: f"{self._hamlet()} {self.one(('Park', 'Arena', 'Ground', 'Field'))}",
            "museum": lambda: f"{self._hamlet()} {self.one(('Museum', 'Gallery', 'Collection', 'Museum of Art'))}",
            "bridge": lambda: f"{self._hamlet()} {self.one(('Bridge', 'Crossing', 'Viaduct'))}",
            "newspaper": lambda: (
                f"The {self._hamlet()} {self.one(('Courier', 'Gazette', 'Herald', 'Tribune', 'Post'))}"
            ),
            "ship": lambda: f"{self.one(('SS', 'MV'))} {self.one(ADJECTIVES)} {self.one(NOUNS)}",
            "festival": lambda: f"{self.one(ADJECTIVES)} {self.one(NOUNS)} {self.one(('Festival', 'Days', 'Fair'))}",
        }
        return self._new(make[kind])

    def one(self, choices: Sequence[str]) -> str:
        """Return one of some texts."""
        return choices[int(self._rng.integers(len(choices)))]

    def _title(self) -> str:
        adjective = self.one(ADJECTIVES)
        first, second = self._rng.choice(len(NOUNS), 2, replace=False)
        noun, other = NOUNS[first], NOUNS[second]
        patterns = (
            f"The {adjective} {noun}",
            f"{noun} of the {adjective} {other}",
            f"Beneath the {adjective} {noun}",
            f"When the {noun} Was {adjective}",
            f"{'An' if noun[0] in 'AEIOU' else 'A'} {noun} for {self._pair(FIRST, FEMALE)}",
            f"{self._pair(FIRST, MALE)} and the {adjective} {noun}",
            f"Letters from a {adjective} {noun}",
            f"The {noun} and the {other}",
        )
        return self.one(patterns)

    def _university(self) -> str:
        stem = self._pair(SURNAME, SURNAME_END)
        return f"{stem} {self.one(('University', 'Institute of Technology', 'College', 'Polytechnic'))}"

    def _hamlet(self) -> str:
        return self._pair(PLACE, HAMLET_END)

    def _place(self, ends: tuple[str, ...], middles: tuple[str, ...] = PLACE_MIDDLE) -> str:
        return f"{self.one(PLACE)}{self.one(middles)}{self.one(ends)}"

    def _pair(self, starts: tuple[str, ...], ends: tuple[str, ...]) -> str:
        return _THRICE.sub(r"\1\1", self.one(starts) + self.one(ends))

    def _new(self, make: Callable[[], str]) -> str:
        for _ in range(MAX_TRIES):
            name = make()
            words = normalise(name).split()
            runs = {" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
            if " ".join(words) not in self._runs and runs.isdisjoint(self._names):
                self._names.add(" ".join(words))
                self._runs |= runs
                return name
        raise GenerationFailed(f"no new name in {MAX_TRIES} tries after {len(self._names)}; ask for fewer entities")
