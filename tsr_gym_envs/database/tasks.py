"""Tasks: requests of customers, the plan that fulfils them, and the database that it leaves.

A `Request` holds what the text states and nothing else; everything else follows from it, the rules and the database.
Only `Task.goal` is hidden.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tsr_gym import GenerationFailed
from tsr_gym.codec import encode
from tsr_gym.seeds import derive_seed
from tsr_gym_envs.database.domains import Param, Tool, Value, rules_of, tools_of
from tsr_gym_envs.database.world import Changes, World, created, world_of
from tsr_gym_envs.settings import in_split

Args = tuple[tuple[str, Value], ...]
# Shares of requests that name a person in place of an id, and whose rule was checked for the agent.
_P_NAMED, _P_CHECKED = 0.5, 0.5
_ATTEMPTS = 400


class Request(NamedTuple):
    """A request as it is stated.

    Attributes:
        tool: Name of the tool that fulfils it.
        given: The arguments that the text states.
        person: Name of the person that stands for the id; "" if the id is stated.
        detail: The value that describes the record of that person; None where the person is the argument.
        checked: Whether the text states that the rules allow it.
    """

    tool: str
    given: Args
    person: str = ""
    detail: Value | None = None
    checked: bool = False


class Task(NamedTuple):
    """A task: its number, its database, its requests, and the hidden changes that the right calls leave."""

    number: int
    domain: str
    people: int
    world: int
    requests: tuple[Request, ...]
    goal: Changes

    @property
    def database(self) -> World:
        """The database at the beginning."""
        return world_of(self.domain, self.people, self.world)


class Step(NamedTuple):
    """A call of a plan."""

    tool: Tool
    args: Args = ()


def arguments(world: World, request: Request) -> Args:
    """Return all arguments of the call that fulfils a request; () if its description fits no single row."""
    tool, given = tools_of(world.domain)[request.tool], dict(request.given)
    if request.person:
        people, records = world.domain.people, world.domain.records
        owners = [row[0] for row in world.rows[people.name].values() if row[1] == request.person]
        if request.detail is not None:
            place = records.names.index(world.domain.detail)
            owners = [
                row[0] for row in world.rows[records.name].values() if row[1] in owners and row[place] == request.detail
            ]
        if len(owners) != 1:
            return ()
        given[tool.params[0].name] = owners[0]
    return tuple((param.name, given[param.name]) for param in tool.params)


def is_fulfilled(world: World, changes: Changes, tool: Tool, args: Args) -> bool:
    """Return whether the database has what a call brings about."""
    if tool.verb == "create":
        return (
            world.row(changes, tool.table, str(created(world.domain.table(tool.table), tool, dict(args))[0]))
            is not None
        )
    wanted = args[-1][1] if tool.value is None else tool.value
    return world.value(changes, tool.table, str(args[0][1]), tool.column) == wanted


def ruled_row(world: World, tool: Tool, args: Args) -> tuple[str, str] | None:
    """Return table and id of the row that the rule of a call reads; None without a rule."""
    rule = tool.rule
    return None if rule is None else (world.ruled_table(tool), str(dict(args)[rule.param]))


def _look_up(world: World, request: Request, args: Args, shown: frozenset[str]) -> Step | None:
    """Return the next look-up that a request needs where some rows were shown; None if it needs none."""
    tools, domain = tools_of(world.domain), world.domain
    tool = tools[request.tool]
    if request.person and not shown.issuperset([str(args[0][1])]):
        owner = str(args[0][1])
        if request.detail is not None:
            owner = str(world.rows[domain.records.name][owner][1])
        if owner not in shown:
            return Step(tools[f"find_{domain.people.noun}"], (("name", request.person),))
        return Step(tools[f"list_{domain.records.name}"], ((domain.people.noun, owner),))
    place = ruled_row(world, tool, args)
    if place is None or request.checked or place[1] in shown:
        return None
    noun = domain.table(place[0]).noun
    return Step(tools[f"show_{noun}"], ((noun, place[1]),))


def next_step(task: Task, changes: Changes, shown: frozenset[str]) -> Step | None:
    """Return the next call of the plan: look-ups, then what the rules allow, then the end; None if it is lost."""
    world, tools = task.database, tools_of(task.database.domain)
    forbidden: list[Tool] = []
    for request in task.requests:
        tool, args = tools[request.tool], arguments(world, request)
        is_forbidden = world.breaks_rule((), tool, dict(args))
        if not is_forbidden and is_fulfilled(world, changes, tool, args):
            continue
        if step := _look_up(world, request, args, shown):
            return step
        if not is_forbidden:
            return Step(tool, args)
        forbidden.append(tool)
    if changes != task.goal:
        return _repair(task, changes)
    if len(forbidden) == len(task.requests) and forbidden[0].rule is not None:
        return Step(tools["refuse"], (("rule", rules_of(world.domain).index(forbidden[0].rule) + 1),))
    return Step(tools["done"])


def _cells(task: Task, changes: Changes) -> list[tuple[str, str, str, Value | None, Value | None]]:
    """Return table, id, column, value and wanted value where a database differs from the goal."""
    world = task.database
    places = sorted({(table, name) for table, name, _ in (*changes, *task.goal)})
    return [
        (table, name, column, world.value(changes, table, name, column), world.value(task.goal, table, name, column))
        for table, name in places
        for column in world.domain.table(table).names
        if world.value(changes, table, name, column) != world.value(task.goal, table, name, column)
    ]


def _repair(task: Task, changes: Changes) -> Step | None:
    """Return a call that sets the first wrong value right; None if no tool does."""
    for table, name, column, _, wanted in _cells(task, changes):
        for tool in task.database.domain.writers:
            is_free = tool.verb == "set" and tool.rule is None and wanted in tool.params[-1].values
            if wanted is not None and is_free and (tool.table, tool.column) == (table, column):
                return Step(tool, ((tool.params[0].name, name), (tool.params[-1].name, wanted)))
    return None


def cannot_be_undone(task: Task, changes: Changes) -> bool:
    """Return whether a change is proven to stay: a row too many, or a wrong value that no tool sets right.

    Columns that calls change by their effects do not count, because later calls can set them right.
    """
    world = task.database
    for table, _, column, present, wanted in _cells(task, changes):
        if present is None:
            continue
        if wanted is None:
            return True
        setters = [tool for tool in world.domain.writers if tool.verb == "set" and tool.table == table]
        settable = any(tool.column == column and tool.value in (None, wanted) for tool in setters)
        if not settable and not _has_effects(world, table, column):
            return True
    return False


def _has_effects(world: World, table: str, column: str) -> bool:
    effects = (effect for tool in world.domain.writers for effect in tool.effects)
    return any(effect.startswith(f"UPDATE {table} SET {column} ") for effect in effects)


def plan_length(world: World, requests: tuple[Request, ...]) -> tuple[int, Changes]:
    """Return the number of calls before the end of the plan, and the changes that it leaves."""
    shown: frozenset[str] = frozenset()
    changes: Changes = ()
    length = 0
    for request in requests:
        tool, args = tools_of(world.domain)[request.tool], arguments(world, request)
        while step := _look_up(world, request, args, shown):
            shown |= {str(row[0]) for row in world.read((), step.tool, dict(step.args))}
            length += 1
        if not world.breaks_rule((), tool, dict(args)):
            changes = world.write(changes, tool, dict(args))
            length += 1
    return length, changes


def form_of(world: World, requests: tuple[Request, ...]) -> bytes:
    """Return bytes that tasks share if they are equal up to the names of rows and people.

    They hold the requests and the contents of the rows that these speak of, with names by order of appearance.
    """
    seen: dict[Value, str] = {}

    def plain(value: Value, column_is_name: bool) -> Value:
        return seen.setdefault(value, f"#{len(seen)}") if column_is_name else value

    parts: list[object] = [world.domain.name]
    for request in requests:
        tool, args = tools_of(world.domain)[request.tool], arguments(world, request)
        parts += [request.tool, bool(request.person), request.detail, request.checked]
        for param, (_, value) in zip(tool.params, args, strict=True):
            parts.append(plain(value, bool(param.table)))
            if param.table:
                table = world.domain.table(param.table)
                names = [True, *(bool(column.refers) or column.name == "name" for column in table.columns)]
                row = world.rows[table.name][str(value)]
                parts.append(tuple(plain(cell, named) for cell, named in zip(row, names, strict=True)))
    return encode(tuple(parts))


def _draw(world: World, rng: np.random.Generator) -> Request | None:
    """Return a random request; None where the draw has no meaning."""
    domain = world.domain
    tool = domain.writers[rng.integers(len(domain.writers))]
    first = tool.params[0]
    is_named, is_checked = rng.random() < _P_NAMED, tool.rule is not None and rng.random() < _P_CHECKED
    given = {param.name: _pick(world, param, rng) for param in tool.params}
    if is_checked and world.breaks_rule((), tool, given):
        return None
    args = tuple(given.items())
    if is_fulfilled(world, (), tool, args):
        return None
    if not is_named:
        return Request(tool.name, args, checked=is_checked)
    row = world.rows[first.table][str(given[first.name])]
    detail = None
    if first.table == domain.records.name:
        detail = row[domain.records.names.index(domain.detail)]
        row = world.rows[domain.people.name][str(row[1])]
    request = Request(tool.name, args[1:], str(row[1]), detail, is_checked)
    return request if arguments(world, request) else None


def _pick(world: World, param: Param, rng: np.random.Generator) -> Value:
    names = param.values or tuple(world.rows[param.table])
    return names[rng.integers(len(names))]


@lru_cache(maxsize=4096)
def task_of(
    number: int, domains: tuple[str, ...], depths: tuple[int, int], people: int, worlds: int, split: str
) -> Task:
    """Return the task of a number.

    Args:
        number: Its number, from 0.
        domains: Names of the domains among which it lies.
        depths: Least and most calls before the end.
        people: Number of people of a database.
        worlds: Number of databases of a domain.
        split: The split that it falls into.

    Raises:
        GenerationFailed: No task is found.
    """
    rng = np.random.default_rng(derive_seed(number, "database task", split))
    domain = domains[rng.integers(len(domains))]
    place = int(rng.integers(worlds))
    world, depth = world_of(domain, people, place), int(rng.integers(depths[0], depths[1] + 1))
    for _ in range(_ATTEMPTS):
        requests = _requests(world, depth, rng)
        if requests and in_split(form_of(world, requests), split):
            return Task(number, domain, people, place, requests, plan_length(world, requests)[1])
    raise GenerationFailed(f"wanted a task of {domain} with {depth} calls in the split {split!r}, got none")


def _requests(world: World, depth: int, rng: np.random.Generator) -> tuple[Request, ...]:
    """Return requests whose plan has `depth` calls; () if the draws do not come out at it."""
    requests: tuple[Request, ...] = ()
    touched: set[Value] = set()
    for _ in range(12 * depth):
        if (request := _draw(world, rng)) is None:
            continue
        tool = tools_of(world.domain)[request.tool]
        rows = {value for param, (_, value) in zip(tool.params, arguments(world, request), strict=True) if param.table}
        # Requests speak of different rows, so that none decides whether the rules allow another one.
        if rows & touched:
            continue
        length, _ = plan_length(world, (*requests, request))
        if length <= depth:
            requests, touched = (*requests, request), touched | rows
        if length == depth:
            return requests
    return ()
