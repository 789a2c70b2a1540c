"""The four domains as data: tables, tools, and the rules that a task states but no tool enforces.

Every domain has a table of people, one of their records, and one of things, so that tasks and plans are the same code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

Value = str | int
# Values of a row by the names of its columns; the first is the id.
Row = tuple[Value, ...]


class Column(NamedTuple):
    """A column, whose values are drawn from `values`; from the ids of another table if it refers to that."""

    name: str
    values: tuple[Value, ...] = ()
    refers: str = ""

    @property
    def sql(self) -> str:
        """The definition in SQL."""
        return f"{self.name} {'INTEGER' if self.values and isinstance(self.values[0], int) else 'TEXT'} NOT NULL"


class Table(NamedTuple):
    """A table: ids are its letter and a number; `noun` names one row."""

    name: str
    noun: str
    letter: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, the id first."""
        return ("id", *(column.name for column in self.columns))


class Param(NamedTuple):
    """A parameter: the id of a row of `table`, one of `values`, or a name where it has neither."""

    name: str
    table: str = ""
    values: tuple[Value, ...] = ()


class Rule(NamedTuple):
    """A rule: the tool must not be used where the row of `param` has one of `values` in `column`.

    With `equals`, neither where it has the value of that argument.
    """

    text: str
    param: str
    column: str
    values: frozenset[Value] = frozenset()
    equals: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        name: Its name in calls.
        description: For the agent.
        verb: ``find`` people by name, ``list`` the records of a person, ``show`` a row, ``set`` a column, ``create`` a
            row, or ``end`` the episode.
        params: Its parameters in their order.
        table: Where it reads or writes.
        column: The column that it sets or by which it looks up.
        value: What it sets, or the status of the row that it creates; None for the value of its last parameter.
        effects: Further statements in SQL, with the parameters by name.
        rule: The rule of its use.
        wish: How a customer asks for it, with the parameters in braces.
    """

    name: str
    description: str
    verb: Literal["find", "list", "show", "set", "create", "end"]
    params: tuple[Param, ...]
    table: str = ""
    column: str = ""
    value: Value | None = None
    effects: tuple[str, ...] = ()
    rule: Rule | None = None
    wish: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its name."""
        return tuple(self.name.split("_"))

    @property
    def writes(self) -> bool:
        """Whether it changes the database."""
        return self.verb in ("set", "create")


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain: people, records that refer to people, things, tools.

    Attributes:
        name: Its name.
        people: The table of people.
        records: The table of records; its first column refers to people.
        things: The table of things that records may refer to; None without.
        detail: The column by which customers describe a record.
        writers: The tools that change something.
    """

    name: str
    people: Table
    records: Table
    things: Table | None
    detail: str
    writers: tuple[Tool, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables."""
        return (self.people, self.records) if self.things is None else (self.people, self.things, self.records)

    def table(self, name: str) -> Table:
        """Return the table of a name."""
        return next(table for table in self.tables if table.name == name)


ITEMS = ("lamp", "desk", "chair", "clock", "rug", "mirror", "kettle", "radio")
STREETS = ("elm", "oak", "pine", "birch", "cedar", "maple", "willow", "ash")
TOWNS = ("oslo", "rome", "paris", "lima", "cairo", "delhi", "tokyo", "quito")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SEATS = tuple(f"{row}{letter}" for row in range(1, 5) for letter in "ad")
MEALS = ("rice", "pasta", "fish", "soup", "salad", "curry")
DRUGS = ("aspirin", "insulin", "codeine", "heparin", "morphine", "zinc")
TITLES = ("whales", "volcanoes", "poems", "trains", "spices", "stars", "knots", "bees", "maps", "ghosts")
ROOMS = tuple(range(101, 109))

_CUSTOMERS = Table(
    "customers",
    "customer",
    "C",
    (Column("name"), Column("standing", ("good", "good", "good", "blocked")), Column("credit", (0,))),
)
_ORDERS = Table(
    "orders",
    "order",
    "O",
    (
        Column("customer", refers="customers"),
        Column("item", ITEMS),
        Column("price", tuple(range(5, 100, 5))),
        Column("days", tuple(range(1, 61))),
        Column("status", ("paid", "paid", "sent")),
        Column("street", STREETS),
    ),
)
_ORDER, _CUSTOMER = Param("order", "orders"), Param("customer", "customers")
SHOP = Domain(
    "shop",
    _CUSTOMERS,
    _ORDERS,
    None,
    "item",
    (
        Tool(
            *("cancel_order", "Cancel an order.", "set", (_ORDER,), "orders", "status", "cancelled"),
            rule=Rule("An order that was sent must not be cancelled.", "order", "status", frozenset({"sent"})),
            wish="cancel {order}",
        ),
        Tool(
            *("refund_order", "Pay an order back to the customer's credit.", "set", (_ORDER,)),
            *("orders", "status", "refunded"),
            effects=(
                "UPDATE customers SET credit = credit + (SELECT price FROM orders WHERE id = :order) "
                "WHERE id = (SELECT customer FROM orders WHERE id = :order)",
            ),
            rule=Rule("No refund after 30 days.", "order", "days", frozenset(range(31, 61))),
            wish="refund {order}",
        ),
        Tool(
            *(
                "change_street",
                "Change the street that an order goes to.",
                "set",
                (_ORDER, Param("street", "", STREETS)),
            ),
            *("orders", "street"),
            wish="change the street of {order} to {street}",
        ),
        Tool(
            *("place_order", "Place a new order.", "create", (_CUSTOMER, Param("item", "", ITEMS)), "orders"),
            value="new",
            rule=Rule("A blocked customer must not order.", "customer", "standing", frozenset({"blocked"})),
            wish="place an order of a {item} for {customer}",
        ),
    ),
)

_PASSENGERS = Table("passengers", "passenger", "P", (Column("name"), Column("tier", ("silver", "gold", "none"))))
_FLIGHTS = Table(
    "flights",
    "flight",
    "F",
    (Column("start", TOWNS), Column("target", TOWNS), Column("day", DAYS), Column("places", (0, 0, *range(1, 9)))),
)
_BOOKINGS = Table(
    "bookings",
    "booking",
    "B",
    (
        Column("passenger", refers="passengers"),
        Column("flight", refers="flights"),
        Column("meal", MEALS),
        Column("fare", ("flex", "flex", "basic")),
        Column("seat", SEATS),
        Column("luggage", (0, 1, 2, 3)),
        Column("status", ("booked",)),
    ),
)
_BOOKING, _PASSENGER = Param("booking", "bookings"), Param("passenger", "passengers")
FLIGHTS = Domain(
    "flights",
    _PASSENGERS,
    _BOOKINGS,
    _FLIGHTS,
    "meal",
    (
        Tool(
            *("cancel_booking", "Cancel a booking.", "set", (_BOOKING,), "bookings", "status", "cancelled"),
            effects=(
                "UPDATE flights SET places = places + 1 WHERE id = (SELECT flight FROM bookings WHERE id = :booking)",
            ),
            rule=Rule("A basic fare must not be cancelled.", "booking", "fare", frozenset({"basic"})),
            wish="cancel {booking}",
        ),
        Tool(
            *("check_in", "Check a booking in.", "set", (_BOOKING,), "bookings", "status", "boarded"),
            rule=Rule(
                *("No check in with more than two pieces of luggage.", "booking", "luggage", frozenset({3})),
            ),
            wish="check in {booking}",
        ),
        Tool(
            *("change_seat", "Change the seat of a booking.", "set", (_BOOKING, Param("seat", "", SEATS))),
            *("bookings", "seat"),
            wish="change the seat of {booking} to {seat}",
        ),
        Tool(
            *("book_flight", "Book a flight for a passenger.", "create", (_PASSENGER, Param("flight", "flights"))),
            "bookings",
            value="booked",
            effects=("UPDATE flights SET places = places - 1 WHERE id = :flight",),
            rule=Rule("A flight without places must not be booked.", "flight", "places", frozenset({0})),
            wish="book {flight} for {passenger}",
        ),
    ),
)

_PATIENTS = Table("patients", "patient", "P", (Column("name"), Column("allergy", DRUGS), Column("drug", ("none",))))
_DOCTORS = Table(
    "doctors", "doctor", "D", (Column("subject", ("heart", "skin", "eyes")), Column("state", ("here", "here", "away")))
)
_VISITS = Table(
    "visits",
    "visit",
    "V",
    (
        Column("patient", refers="patients"),
        Column("doctor", refers="doctors"),
        Column("day", DAYS),
        Column("room", ROOMS),
        Column("hour", tuple(range(8, 18))),
        Column("status", ("planned", "planned", "held")),
    ),
)
_VISIT, _PATIENT = Param("visit", "visits"), Param("patient", "patients")
HOSPITAL = Domain(
    "hospital",
    _PATIENTS,
    _VISITS,
    _DOCTORS,
    "day",
    (
        Tool(
            *("cancel_visit", "Cancel a visit.", "set", (_VISIT,), "visits", "status", "cancelled"),
            rule=Rule("A visit that was held must not be cancelled.", "visit", "status", frozenset({"held"})),
            wish="cancel {visit}",
        ),
        Tool(
            *("change_room", "Move a visit to another room.", "set", (_VISIT, Param("room", "", ROOMS))),
            *("visits", "room"),
            wish="move {visit} to room {room}",
        ),
        Tool(
            *("prescribe", "Prescribe a drug for a patient.", "set", (_PATIENT, Param("drug", "", DRUGS))),
            *("patients", "drug"),
            rule=Rule("No drug for a patient who is allergic to it.", "patient", "allergy", equals="drug"),
            wish="prescribe {drug} for {patient}",
        ),
        Tool(
            *(
                "book_visit",
                "Book a visit of a patient with a doctor.",
                "create",
                (_PATIENT, Param("doctor", "doctors")),
            ),
            "visits",
            value="planned",
            rule=Rule("A doctor who is away must not be booked.", "doctor", "state", frozenset({"away"})),
            wish="book a visit with {doctor} for {patient}",
        ),
    ),
)

_MEMBERS = Table("members", "member", "M", (Column("name"), Column("fine", (0, 0, 0, 5, 10, 20))))
_BOOKS = Table("books", "book", "B", (Column("title", TITLES), Column("state", ("in", "lent", "reserved"))))
_LOANS = Table(
    "loans",
    "loan",
    "L",
    (
        Column("member", refers="members"),
        Column("book", refers="books"),
        Column("subject", TITLES),
        Column("renewals", (0, 1, 2, 3)),
        Column("shelf", tuple(range(1, 10))),
        Column("week", tuple(range(1, 53))),
        Column("status", ("open",)),
    ),
)
_LOAN, _MEMBER = Param("loan", "loans"), Param("member", "members")
LIBRARY = Domain(
    "library",
    _MEMBERS,
    _LOANS,
    _BOOKS,
    "subject",
    (
        Tool(
            *("renew_loan", "Renew a loan.", "set", (_LOAN,), "loans", "status", "renewed"),
            effects=("UPDATE loans SET renewals = renewals + 1 WHERE id = :loan",),
            rule=Rule(
                "A loan that was renewed three times or more must not be renewed.",
                "loan",
                "renewals",
                frozenset(range(3, 10)),
            ),
            wish="renew {loan}",
        ),
        Tool(
            *("change_shelf", "Change the shelf of a loan.", "set", (_LOAN, Param("shelf", "", tuple(range(1, 10))))),
            *("loans", "shelf"),
            wish="change the shelf of {loan} to {shelf}",
        ),
        Tool(
            *("waive_fine", "Waive the fine of a member.", "set", (_MEMBER,), "members", "fine", 0),
            rule=Rule("A fine above 10 must not be waived.", "member", "fine", frozenset({20})),
            wish="waive the fine of {member}",
        ),
        Tool(
            *("reserve_book", "Reserve a book for a member.", "create", (_MEMBER, Param("book", "books")), "loans"),
            value="reserved",
            effects=("UPDATE books SET state = 'reserved' WHERE id = :book",),
            rule=Rule("A reserved book must not be reserved again.", "book", "state", frozenset({"reserved"})),
            wish="reserve {book} for {member}",
        ),
    ),
)

DOMAINS: Mapping[str, Domain] = {domain.name: domain for domain in (SHOP, FLIGHTS, HOSPITAL, LIBRARY)}


@cache
def rules_of(domain: Domain) -> tuple[Rule, ...]:
    """Return the rules of a domain; `refuse` names them by their number, from 1."""
    return tuple(tool.rule for tool in domain.writers if tool.rule is not None)


@cache
def tools_of(domain: Domain) -> Mapping[str, Tool]:
    """Return the tools of a domain by name: those that look up, those that change, and those that end."""
    people, records, things = domain.people, domain.records, domain.things
    named, record = Param("name"), Param(records.noun, records.name)
    person = Param(people.noun, people.name)
    tools = [
        Tool(f"find_{people.noun}", f"Find a {people.noun} by name.", "find", (named,), people.name, "name"),
        Tool(
            *(f"list_{records.name}", f"List the {records.name} of a {people.noun}.", "list", (person,), records.name),
            records.columns[0].name,
        ),
        Tool(f"show_{people.noun}", f"Show a {people.noun}.", "show", (person,), people.name),
        Tool(f"show_{records.noun}", f"Show one of the {records.name}.", "show", (record,), records.name),
    ]
    if things is not None:
        thing = Param(things.noun, things.name)
        tools.append(Tool(f"show_{things.noun}", f"Show one of the {things.name}.", "show", (thing,), things.name))
    rule = Param("rule", "", tuple(range(1, len(rules_of(domain)) + 1)))
    ends = (
        Tool("done", "End after the request was carried out as far as the rules allow.", "end", ()),
        Tool("refuse", "End without any change, because of a rule, given by its number.", "end", (rule,)),
    )
    return {tool.name: tool for tool in (*tools, *domain.writers, *ends)}


def tools(domain: str) -> list[dict[str, Any]]:
    """Return the tools of a domain as JSON schemas with name, description and parameters.

    Args:
        domain: Name of the domain.

    >>> tools("shop")[5]["name"], tools("shop")[5]["parameters"]["required"]
    ('refund_order', ['order'])
    """
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": {
                "type": "object",
                "properties": {param.name: _schema(DOMAINS[domain], param) for param in tool.params},
                "required": [param.name for param in tool.params],
                "additionalProperties": False,
            },
        }
        for tool in tools_of(DOMAINS[domain]).values()
    ]


def schemas_of(domains: Sequence[str], *, sql: bool = False) -> list[dict[str, Any]]:
    """Return the tools of several domains as JSON schemas, by name; with `sql`, also the tool of queries.

    >>> [schema["name"] for schema in schemas_of(("shop", "library"), sql=True)].count("refuse")
    1
    """
    schemas: dict[str, dict[str, Any]] = {}
    for schema in (schema for domain in domains for schema in tools(domain)):
        other = schemas.setdefault(schema["name"], schema)
        # Only the number of the rules differs, by which a call refuses: the largest one fits all domains.
        if len(str(schema)) > len(str(other)):
            schemas[schema["name"]] = schema
    if sql:
        query = {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]}
        schemas["query"] = {"name": "query", "description": "Read the tables by a query in SQL.", "parameters": query}
    return [*schemas.values()]


def _schema(domain: Domain, param: Param) -> dict[str, Any]:
    if param.table:
        table = domain.table(param.table)
        return {"type": "string", "description": f"Id of a {table.noun}, such as {table.letter}7."}
    if param.values:
        return {"type": "integer" if isinstance(param.values[0], int) else "string", "enum": [*param.values]}
    return {"type": "string", "description": "Name of a person."}
