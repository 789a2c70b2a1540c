"""The entities of a world, their names, and the facts about them, consistent in time.

Names are invented from syllables and plain words: no real names, and no name contains another one. People around one
thing were born within a dozen years of each other, works appear when their makers are between 20 and 60, children after
their parents.
"""

import calendar
import re
import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from importlib.resources import files

import numpy as np

from tsr_gym.errors import GenerationFailed
from tsr_gym.seeds import derive_seed
from tsr_gym_envs.retrieval_qa.grading import normalise
from tsr_gym_envs.retrieval_qa.world.facts import Entity, Fact, Knowledge, Literal, gather
from tsr_gym_envs.retrieval_qa.world.sentences import Relation, grammar
from tsr_gym_envs.retrieval_qa.world.settings import WorldSettings

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

    def of_kind(self, entity_kind: str) -> str:
        """Return a name for any other kind of entity."""
        make: dict[str, Callable[[], str]] = {
            "film": self._title,
            "book": self._title,
            "album": self._title,
            "band": self._band,
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
            "festival": lambda: f"{self._thing()} {self.one(('Festival', 'Days', 'Fair'))}",
        }
        return self._new(make[entity_kind])

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


# Entities of each kind among 1110.
SHARES = {
    "country": 6,
    "mountain": 30,
    "lake": 20,
    "river": 25,
    "city": 60,
    "person": 380,
    "university": 25,
    "company": 60,
    "book": 80,
    "film": 90,
    "band": 45,
    "album": 70,
    "stadium": 30,
    "club": 30,
    "museum": 30,
    "bridge": 30,
    "newspaper": 25,
    "ship": 35,
    "festival": 20,
}
# Trades that many relations ask for, so that more people have them.
COMMON_TRADES = ("film director", "novelist", "singer", "entrepreneur", "politician", "politician", "politician")
# Relations that only some entities have; all others are always known.
PARTIAL = {
    "spouse": 0.6,
    "father": 0.3,
    "mother": 0.3,
    "mentor": 0.35,
    "educated_at": 0.8,
    "settled_in": 0.5,
    "based_on": 0.5,
    "parent_company": 0.3,
    "twin_city": 0.6,
    "first_climbed_by": 0.7,
    "ascent_year": 0.7,
    "pages": 0.8,
}
# Relations to people who hold an office today.
PRESENT = ("mayor", "chief_executive", "coach", "editor")
PRESENT_BIRTH = 1962
# Relations to older things: the least and the most years between the object's era and the subject's.
OLDER = {
    "performer": (11, 35),
    "based_on": (11, 60),
    "educated_at": (26, 150),
    "film_studio": (11, 150),
    "publisher": (11, 150),
    "label": (11, 150),
    "builder": (11, 150),
    "parent_company": (11, 150),
}
ONCE_DEAD, LAST_YEAR = 1930, 2020
# Births of the people around an entity; its own years follow 34 to 44 years later.
LAST_BORN = 1978
FIRST_BORN = {
    "film": 1885,
    "band": 1920,
    "album": 1932,
    "film director": 1875,
    "record producer": 1920,
    "politician": 1948,
    "manager": 1948,
    "football manager": 1948,
    "journalist": 1948,
}
EARLIEST_BORN, LATEST_UNIVERSITY = 1850, 1892
YEARS_LATER, YEARS_SPREAD = 34, 11
IN_A_COUNTRY = ("city", "river", "lake", "mountain")
P_HAS_ALIAS = 0.4
WINDOW = 12
RANGES = {
    "people": (8_000, 940_000),
    "students": (1_200, 48_000),
    "seats": (4_000, 71_000),
    "pages": (120, 980),
    "minutes": (71, 199),
    "kilometres": (41, 1_900),
    "height": (640, 6_900),
    "depth": (9, 480),
    "span": (60, 1_400),
}
UNIT_WORDS = {"people": "inhabitants", "kilometres": "kilometres", "metres": "metres"}
SHORT_UNITS = {"kilometres": "km", "metres": "m", "minutes": "min"}


def populate(settings: WorldSettings) -> Knowledge:
    """Return everything that is true in the world of some settings."""
    rng = np.random.default_rng(derive_seed(settings.seed, "retrieval world", "facts"))
    entities = _entities(settings, rng)
    drawing = _Drawing(settings, rng, entities)
    facts = [fact for relation in grammar().relations.values() for fact in drawing.facts_of(relation)]
    return gather(entities, facts)


def _entities(settings: WorldSettings, rng: np.random.Generator) -> list[Entity]:
    book = NameBook(rng)
    entities: list[Entity] = []
    for entity_kind, share in SHARES.items():
        first = len(entities)
        for _ in range(max(6, share * settings.num_entities // sum(SHARES.values()))):
            entity = _entity(len(entities), entity_kind, book, rng)
            # A lookalike resembles an earlier entity of its kind, so that a search by name alone finds both.
            if len(entities) > first and rng.random() < settings.p_lookalike:
                entity = _lookalike(entity, entities[int(rng.integers(first, len(entities)))], book)
            entities.append(entity)
    return _adaptations(entities, settings, rng)


def _entity(number: int, entity_kind: str, book: NameBook, rng: np.random.Generator) -> Entity:
    has_alias = rng.random() < P_HAS_ALIAS
    if entity_kind == "person":
        trades = tuple(dict.fromkeys(r.trade for r in grammar().relations.values() if r.object == "person" and r.trade))
        is_female = bool(rng.random() < 0.5)
        name = book.person(is_female)
        trade = book.one(trades + tuple(trade for trade in COMMON_TRADES if trade in trades))
        return Entity(
            number, entity_kind, name, book.credit(name) if has_alias else "", trade, _born(trade, rng), is_female
        )
    born = _born(entity_kind, rng)
    if entity_kind in ("company", "river", "country"):
        trade = book.one(tuple(COMPANY_END)) if entity_kind == "company" else ""
        name, short = {"company": lambda: book.company(trade), "river": book.river, "country": book.country}[
            entity_kind
        ]()
        return Entity(number, entity_kind, name, short if has_alias else "", trade, born)
    alias = book.of_kind("nickname" if entity_kind == "club" else entity_kind) if has_alias else ""
    return Entity(number, entity_kind, book.of_kind(entity_kind), alias, "", born)


def _born(kind_or_trade: str, rng: np.random.Generator) -> int:
    last = LATEST_UNIVERSITY if kind_or_trade == "university" else LAST_BORN
    return int(rng.integers(FIRST_BORN.get(kind_or_trade, EARLIEST_BORN), last + 1))


def _lookalike(entity: Entity, like: Entity, book: NameBook) -> Entity:
    """Return a person with another's surname; the few words of other names make those similar anyway."""
    if entity.kind != "person":
        return entity
    name = book.person(entity.is_female, like.name.split()[-1])
    return entity._replace(name=name, alias=book.credit(name) if entity.alias else "")


def _adaptations(entities: list[Entity], settings: WorldSettings, rng: np.random.Generator) -> list[Entity]:
    """Return the entities with some films under the title of a book that is old enough."""
    books = [entity for entity in entities if entity.kind == "book"]
    taken: set[str] = set()
    for film in [entity for entity in entities if entity.kind == "film"]:
        book = books[int(rng.integers(len(books)))]
        least, most = OLDER["based_on"]
        is_older = least <= film.born - book.born <= most
        if rng.random() < settings.p_lookalike and is_older and book.name not in taken:
            taken.add(book.name)
            entities[film.number] = film._replace(name=book.name)
    return entities


class _Drawing:
    """Draws the facts of one relation after the other."""

    def __init__(self, settings: WorldSettings, rng: np.random.Generator, entities: list[Entity]) -> None:
        self._settings = settings
        self._rng = rng
        self._entities = entities
        self._married: dict[int, int] = {}
        self._busy: set[int] = set()
        pools: dict[tuple[str, str], list[Entity]] = {}
        # Sorted by birth, so that the entities of any span of years are one slice of a pool.
        for entity in sorted(entities, key=lambda entity: entity.born):
            for key in {(entity.kind, ""), (entity.kind, entity.trade)}:
                pools.setdefault(key, []).append(entity)
        self._pools = pools
        self._titles = {entity.name: entity for entity in entities if entity.kind == "book"}
        self._births = {key: [entity.born for entity in pool] for key, pool in pools.items()}
        self._country = {
            entity.number: self._one(pools["country", ""]) for entity in entities if entity.kind in IN_A_COUNTRY
        }

    def facts_of(self, relation: Relation) -> list[Fact]:
        """Return the facts of a relation, one per subject that has one."""
        facts = []
        for subject in self._entities:
            if subject.kind != relation.subject or self._rng.random() >= PARTIAL.get(relation.name, 1.0):
                continue
            drawn = self._literal(subject, relation) if relation.is_literal else self._object(subject, relation)
            if isinstance(drawn, Literal):
                facts.append(Fact(subject.number, relation.name, drawn, drawn.answers[0]))
            elif drawn is not None and drawn.number != subject.number:
                facts.append(Fact(subject.number, relation.name, drawn.number, self._text_of(drawn)))
        return facts

    def _text_of(self, entity: Entity) -> str:
        return entity.alias if entity.alias and self._rng.random() < self._settings.p_alias else entity.name

    def _object(self, subject: Entity, relation: Relation) -> Entity | None:
        name, born = relation.name, subject.born
        if name == "spouse":
            return self._spouse(subject)
        if name == "father":
            surname = subject.name.split()[-1]
            men = self._people(born - 30, 10, is_female=False)
            return self._one([man for man in men if man.name.split()[-1] == surname])
        if name == "mother":
            return self._one(self._people(born - 30, 8, is_female=True))
        if name == "mentor":
            return self._one(self._people(born - 25, 10, trade=subject.trade))
        if name == "based_on" and subject.name in self._titles:
            return self._titles[subject.name]
        if name in OLDER:
            least, most = OLDER[name]
            return self._one(self._slice((relation.object, relation.trade), born - most, born - least))
        if relation.object == "person":
            if name in PRESENT:
                return self._office_holder(relation)
            return self._one(self._people(born, WINDOW, trade=relation.trade))
        if relation.object == "country":
            return self._country[subject.number]
        return self._one(self._near(subject, relation))

    def _near(self, subject: Entity, relation: Relation) -> list[Entity]:
        """Return the objects that lie in the subject's country, or all where it lies in none or none is there."""
        pool = self._pools[relation.object, relation.trade]
        here = subject if subject.kind == "country" else self._country.get(subject.number)
        if here is None or relation.name == "twin_city":
            return pool
        return [entity for entity in pool if self._country.get(entity.number) == here] or pool

    def _spouse(self, subject: Entity) -> Entity | None:
        if subject.number in self._married:
            return self._entities[self._married[subject.number]]
        other = self._one(self._people(subject.born, 8, is_female=not subject.is_female))
        if other is None or other.number in self._married:
            return None
        self._married[subject.number], self._married[other.number] = other.number, subject.number
        return other

    def _office_holder(self, relation: Relation) -> Entity | None:
        """Return a living person who holds no such office yet."""
        free = [
            person
            for person in self._people(PRESENT_BIRTH, WINDOW, trade=relation.trade)
            if person.number not in self._busy
        ]
        holder = self._one(free)
        if holder is not None:
            self._busy.add(holder.number)
        return holder

    def _people(self, born: int, window: int, *, trade: str = "", is_female: bool | None = None) -> list[Entity]:
        people = self._slice(("person", trade), born - window, born + window)
        return [person for person in people if is_female in (None, person.is_female)]

    def _slice(self, key: tuple[str, str], first: int, last: int) -> list[Entity]:
        births = self._births.get(key, [])
        return self._pools.get(key, [])[bisect_left(births, first) : bisect_right(births, last)]

    def _one(self, pool: list[Entity]) -> Entity | None:
        return pool[int(self._rng.integers(len(pool)))] if pool else None

    def _literal(self, subject: Entity, relation: Relation) -> Literal | None:
        name, unit = relation.name, relation.object
        if name == "birth_date":
            return date(subject.born, int(self._rng.integers(365)))
        if name == "death_year":
            is_dead = subject.born < ONCE_DEAD
            return year(min(subject.born + int(self._rng.integers(61, 90)), LAST_YEAR)) if is_dead else None
        if name == "charter_year":
            return year(int(self._rng.integers(1100, 1800)))
        if unit == "year":
            return year(min(subject.born + YEARS_LATER + int(self._rng.integers(YEARS_SPREAD)), LAST_YEAR))
        low, high = RANGES[name if name in RANGES else unit]
        return number(int(self._rng.integers(low, high)), unit)


def date(born: int, day: int) -> Literal:
    """Return the date of a day of a year, counted from 0; there are no leap days."""
    month = 1
    while day >= (length := calendar.monthrange(1999, month)[1]):
        day -= length
        month += 1
    name = calendar.month_name[month]
    return Literal((f"{day + 1} {name} {born}", f"{name} {day + 1}, {born}"), born * 10_000 + month * 100 + day + 1)


def year(value: int) -> Literal:
    """Return a year."""
    return Literal((str(value),), value)


def number(value: int, unit: str) -> Literal:
    """Return a number of something; the number alone counts as an answer, too."""
    text = f"{value:,}"
    short = (f"{text} {SHORT_UNITS[unit]}",) if unit in SHORT_UNITS else ()
    return Literal((f"{text} {UNIT_WORDS.get(unit, unit)}", *short, text), value)
