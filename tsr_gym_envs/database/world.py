"""A generated database in memory, and states of it as changed rows.

A `World` is a connection with the rows that the generator made. A state of it is `Changes`: the rows that differ, in
logical order, so that equal databases are equal values for any order of writes. The connection is moved to
a wanted state by writing only the rows that differ from the state that it is in.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock
from types import MappingProxyType
from typing import Any

import numpy as np

from tsr_gym.seeds import derive_seed
from tsr_gym_envs.database.domains import DOMAINS, Column, Domain, Row, Table, Tool, Value

# (table, id, row) of every row that differs from the generated one, sorted.
Changes = tuple[tuple[str, str, Row], ...]
Args = Mapping[str, Value]

FIRST = (
    "ann", "ben", "cleo", "dan", "eve", "finn", "gwen", "hugo", "ida", "jack", "kate", "liam", "mona", "noah",
    "olga", "paul", "rosa", "sam", "tina", "uma", "vera", "will", "xena", "yuri", "zoe", "alma", "bert", "cora",
    "dirk", "elsa", "fred", "gina", "hans", "iris", "jane", "kurt", "lena", "max", "nina", "otto",
)  # fmt: skip
LAST = (
    "abel", "bond", "cook", "dean", "east", "ford", "gray", "hill", "iron", "jones", "king", "lake", "moss",
    "north", "owen", "park", "quinn", "reed", "stone", "todd", "usher", "vance", "west", "young",
)  # fmt: skip
_SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "no", "ru", "si")
# Most instructions of a query, in thousands of SQLite's machine, and the longest value that it may make.
_MAX_THOUSANDS, _MAX_VALUE = 200, 10_000
MAX_SHOWN = 20
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_WRITES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_FUNCTION}
_FUNCTIONS = {"count", "sum", "avg", "min", "max", "length", "lower", "upper", "abs", "round", "coalesce", "like"}


def may_write(action: int, *about: Any) -> int:
    """Return SQLite's code that allows reading and writing rows, and nothing else: an authorizer."""
    # `serialize` counts the pages by a pragma.
    counts_pages = action == sqlite3.SQLITE_PRAGMA and about[:2] == ("page_count", None)
    return sqlite3.SQLITE_OK if counts_pages or action in _READS | _WRITES else sqlite3.SQLITE_DENY


def may_read(action: int, first: Any, second: Any, *about: Any) -> int:
    """Return SQLite's code that allows reading rows, with functions that depend on nothing else: an authorizer."""
    is_plain = action == sqlite3.SQLITE_FUNCTION and str(second).lower() in _FUNCTIONS
    return sqlite3.SQLITE_OK if action in _READS or is_plain else sqlite3.SQLITE_DENY


def name_of(number: int) -> str:
    """Return the name of a person; the first are single words, and no two are equal.

    >>> name_of(0), name_of(41), name_of(5000)
    ('ann', 'ben abel', 'ann dedeba')
    """
    block, place = divmod(number, len(FIRST))
    if block == 0:
        return FIRST[place]
    if block <= len(LAST):
        return f"{FIRST[place]} {LAST[block - 1]}"
    return f"{FIRST[place]} {''.join(_SYLLABLES[int(digit)] for digit in str(block - len(LAST) + 9))}"


def generate(domain: Domain, people: int, seed: int) -> dict[str, dict[str, Row]]:
    """Return the rows of every table by id: `people` people, as many things, and twice as many records."""
    rng = np.random.default_rng(derive_seed(seed, "database", *domain.name.encode(), people))
    numbers = {table.name: people * (1 + (table is domain.records)) for table in domain.tables}
    return {
        table.name: {row[0]: row for row in _rows(table, numbers, domain, rng)}  # type: ignore[misc]
        for table in domain.tables
    }


def _rows(table: Table, numbers: Mapping[str, int], domain: Domain, rng: np.random.Generator) -> Iterator[Row]:
    count = numbers[table.name]
    names = rng.permutation(max(count, len(FIRST)))[:count]
    drawn: list[list[Value]] = []
    for column in table.columns:
        if column.name == "name":
            drawn.append([name_of(int(number)) for number in names])
        elif column.refers:
            letter = domain.table(column.refers).letter
            picks = rng.integers(1, numbers[column.refers] + 1, size=count)
            drawn.append([f"{letter}{pick}" for pick in picks])
        else:
            drawn.append([column.values[pick] for pick in rng.integers(len(column.values), size=count)])
    for number, values in enumerate(zip(*drawn, strict=True), 1):
        yield (f"{table.letter}{number}", *values)


class World:
    """A generated database, and a connection that is moved between its states.

    Args:
        domain: The domain.
        people: Number of people, which decides the size.
        seed: Seed of the data.

    Attributes:
        rows: The generated rows by table and id.
    """

    def __init__(self, domain: str, people: int, seed: int) -> None:
        self.domain = DOMAINS[domain]
        self._arguments = (domain, people, seed)
        self.rows: Mapping[str, Mapping[str, Row]] = MappingProxyType(generate(self.domain, people, seed))
        self._touched: set[tuple[str, str]] = set()
        self._lock = RLock()
        self._here: Mapping[tuple[str, str], Row] = {}
        self._connection = self._connected()

    def __reduce__(self) -> tuple[Callable[..., "World"], tuple[Any, ...]]:
        return world_of, self._arguments

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # Temporary tables and indices of SQLite stay in memory, too.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.create_function("touched", 2, lambda table, row: self._touched.add((table, row)))
        for table in self.domain.tables:
            # Without row numbers, rows lie in the order of their ids, so that no answer depends on the order of writes.
            columns = ", ".join(column.sql for column in table.columns)
            connection.execute(f"CREATE TABLE {table.name} (id TEXT PRIMARY KEY, {columns}) WITHOUT ROWID")
            marks = ", ".join("?" for _ in table.names)
            connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", self.rows[table.name].values())
            for event in ("INSERT", "UPDATE"):
                connection.execute(
                    f"CREATE TEMP TRIGGER {table.name}_{event} AFTER {event} ON {table.name} "
                    f"BEGIN SELECT touched('{table.name}', new.id); END"
                )
        for column in ("name", self.domain.records.columns[0].name):
            table = self.domain.people if column == "name" else self.domain.records
            connection.execute(f"CREATE INDEX by_{column} ON {table.name} ({column})")
        connection.set_authorizer(may_write)
        return connection

    @contextmanager
    def at(self, changes: Changes) -> Iterator[sqlite3.Connection]:
        """Give the connection in a state; it must be used only inside of the block."""
        with self._lock:
            try:
                self._move({(table, name): row for table, name, row in changes})
                yield self._connection
            except BaseException:
                # The rows are unknown after an interruption, so that the connection is made anew.
                self._here, self._connection = {}, self._connected()
                raise

    def _move(self, wanted: Mapping[tuple[str, str], Row]) -> None:
        here = self._here
        for place in {**here, **wanted}:
            if here.get(place) != wanted.get(place):
                self._put(*place, wanted.get(place) or self.rows[place[0]].get(place[1]))
        self._here = wanted
        self._touched.clear()

    def _put(self, table: str, name: str, row: Row | None) -> None:
        if row is None:
            self._connection.execute(f"DELETE FROM {table} WHERE id = ?", (name,))
            return
        marks = ", ".join("?" for _ in row)
        self._connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)

    def row(self, changes: Changes, table: str, name: str) -> Row | None:
        """Return a row in a state; None if no row has this id. It reads no connection."""
        return next((row for *place, row in changes if place == [table, name]), self.rows[table].get(name))

    def value(self, changes: Changes, table: str, name: str, column: str) -> Value | None:
        """Return a value in a state; None if there is no such row."""
        row = self.row(changes, table, name)
        return None if row is None else row[self.domain.table(table).names.index(column)]

    def read(self, changes: Changes, tool: Tool, args: Args) -> tuple[Row, ...]:
        """Return the rows that a tool shows, in the order of their ids, at most MAX_SHOWN."""
        column = "id" if tool.verb == "show" else tool.column
        with self.at(changes) as connection:
            query = f"SELECT * FROM {tool.table} WHERE {column} = ? ORDER BY id LIMIT {MAX_SHOWN}"
            return tuple(connection.execute(query, (args[tool.params[0].name],)))

    def write(self, changes: Changes, tool: Tool, args: Args) -> Changes:
        """Return the state after a tool changed the database, which it does without a look at the rules."""
        with self.at(changes) as connection:
            table = self.domain.table(tool.table)
            if tool.verb == "create":
                row = created(table, tool, args)
                connection.execute(f"INSERT INTO {table.name} VALUES ({', '.join('?' for _ in row)})", row)
            else:
                value = args[tool.params[-1].name] if tool.value is None else tool.value
                target = args[tool.params[0].name]
                connection.execute(f"UPDATE {table.name} SET {tool.column} = ? WHERE id = ?", (value, target))
            for effect in tool.effects:
                connection.execute(effect, dict(args))
            after = dict(self._here)
            for place in self._touched:
                row = connection.execute(f"SELECT * FROM {place[0]} WHERE id = ?", place[1:]).fetchone()
                if row == self.rows[place[0]].get(place[1]):
                    after.pop(place, None)
                else:
                    after[place] = row
            self._here = after
            return tuple((*place, after[place]) for place in sorted(after))

    def query(self, changes: Changes, sql: str) -> tuple[Row, ...]:
        """Return the first rows of a query in SQL, which can only read.

        Raises:
            sqlite3.Error: SQLite refuses it, or it takes too many instructions.
        """
        with self.at(changes) as connection:
            data = connection.serialize()
        # The statements of an agent run in a copy, so that nothing that they do reaches the connection of the tools.
        copy = sqlite3.connect(":memory:", isolation_level=None)
        try:
            copy.execute("PRAGMA temp_store = MEMORY")
            copy.deserialize(data)
            copy.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
            copy.set_authorizer(may_read)
            spent = iter(range(_MAX_THOUSANDS))
            copy.set_progress_handler(lambda: next(spent, None) is None, 1000)
            return tuple(copy.execute(sql).fetchmany(MAX_SHOWN))
        finally:
            copy.close()

    def breaks_rule(self, changes: Changes, tool: Tool, args: Args) -> bool:
        """Return whether a call breaks the rule of its tool."""
        rule = tool.rule
        if rule is None:
            return False
        value = self.value(changes, self.ruled_table(tool), str(args[rule.param]), rule.column)
        return value in rule.values or (bool(rule.equals) and value == args[rule.equals])

    @staticmethod
    def ruled_table(tool: Tool) -> str:
        """Return the table whose row the rule of a tool reads."""
        return next(param.table for param in tool.params if tool.rule and param.name == tool.rule.param)


def created(table: Table, tool: Tool, args: Args) -> Row:
    """Return the row that a tool creates; its id is made of the arguments, so that it does not depend on the order."""
    name = "-".join((table.letter, *(str(args[param.name]).upper() for param in tool.params)))

    def value(column: Column) -> Value:
        if column.name in args:
            return args[column.name]
        return tool.value if column.name == "status" and tool.value is not None else (column.values or ("",))[0]

    return (name, *map(value, table.columns))


@lru_cache(maxsize=64)
def world_of(domain: str, people: int, seed: int) -> World:
    """Return a world; the same one again while it is remembered."""
    return World(domain, people, seed)
