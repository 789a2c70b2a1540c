"""The database environment: tasks, tools, and a database in memory as a small value."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

import tsr_gym
from tsr_gym import ConfigError, Limits, Step, TextEnv
from tsr_gym.codec import encode
from tsr_gym.teaching import Teaching
from tsr_gym.text_env import Guide
from tsr_gym_envs.database.calls import QUERY, Call, read_call, write_call
from tsr_gym_envs.database.domains import DOMAINS, Row, Tool, Value, rules_of, schemas_of, tools_of
from tsr_gym_envs.database.players import poor_turn, teacher_turn, vocabulary
from tsr_gym_envs.database.tasks import (
    Args,
    Request,
    Task,
    arguments,
    cannot_be_undone,
    form_of,
    is_fulfilled,
    next_step,
    ruled_row,
    task_of,
)
from tsr_gym_envs.database.world import Changes
from tsr_gym_envs.reasons import invalid
from tsr_gym_envs.settings import SPLITS, settings_from

MAX_DEPTH, MAX_PEOPLE = 8, 10_000
# Turns of an episode in addition to twice the calls of the longest plan.
_SPARE_TURNS = 4
_NUM_TASKS = 1 << 31
INSTRUCTIONS = (
    'You serve customers with tools on a database. Every turn is one call, such as show_order(order="O17"). Carry '
    "out "
    "the request as far as the rules allow, change nothing else, and end with done(). The tools check no rules, "
    "and a change that breaks one cannot be undone. If the rules allow nothing of the request, look at the row that "
    "breaks the rule and end with refuse(rule=NUMBER)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """The settings of an episode; `DatabaseEnv` documents them."""

    preset: str = "default"
    domain: str | tuple[str, ...] = "all"
    depth: int | tuple[int, int] = (1, 4)
    people: int = 10
    num_worlds: int = 64
    split: str = "all"
    sql: bool = False
    observation_mode: Literal["text", "compact"] = "text"
    max_turns: int | None = None

    def __post_init__(self) -> None:
        if not self.domains or not {*self.domains} <= {*DOMAINS}:
            raise ConfigError(f"wanted domain 'all' or of {sorted(DOMAINS)}, got {self.domain!r}")
        low, high = self.depths
        if not 1 <= low <= high <= MAX_DEPTH:
            raise ConfigError(f"wanted depth from 1 to {MAX_DEPTH}, got {self.depth!r}")
        if not 2 <= self.people <= MAX_PEOPLE:
            raise ConfigError(f"wanted people from 2 to {MAX_PEOPLE}, got {self.people}")
        if self.num_worlds < 1:
            raise ConfigError(f"wanted num_worlds >= 1, got {self.num_worlds}")
        if self.split not in SPLITS:
            raise ConfigError(f"wanted split of {sorted(SPLITS)}, got {self.split!r}")
        if self.observation_mode not in ("text", "compact"):
            raise ConfigError(f"wanted observation_mode of ['compact', 'text'], got {self.observation_mode!r}")
        if self.max_turns is not None and self.max_turns < 1:
            raise ConfigError(f"wanted max_turns >= 1, got {self.max_turns}")

    @property
    def domains(self) -> tuple[str, ...]:
        """The names of the domains."""
        return (
            tuple(DOMAINS) if self.domain == "all" else (self.domain,) if isinstance(self.domain, str) else self.domain
        )

    @property
    def depths(self) -> tuple[int, int]:
        """The least and the most calls of a plan before its end."""
        return self.depth if isinstance(self.depth, tuple) else (self.depth, self.depth)


class DatabaseState(NamedTuple):
    """The state of an episode.

    Attributes:
        task: Number of the task.
        changes: The rows that differ from the beginning, in logical order.
        shown: Ids of the rows that were shown, sorted.
        broken: The rule that a call broke first; "" before that.
        ended: The call that ended the episode; "" before that.
        reply: What the last call returned: a word, the table of the rows, the rows.
    """

    task: int
    changes: Changes = ()
    shown: tuple[str, ...] = ()
    broken: str = ""
    ended: str = ""
    reply: tuple[str, str, tuple[Row, ...]] = ("", "", ())


class DatabaseEnv(TextEnv[DatabaseState]):
    """Serve customers of a shop, an airline, a hospital or a library with tools on a database.

    ## Description
    Databases of SQLite in memory, with generated data, behind typed tools. A task is a customer's request with the
    rules of the house. The tools do what they are asked, also where a rule forbids it, and such a change cannot be
    undone. The difficulty is the depth: the number of calls that the plan needs before its end, look-ups included.

    ## Action Space
    Text: one call, as ``cancel_order(order="O17")`` or in words, ``cancel order o17``. An unknown tool, a wrong type or
    a row that does not exist makes the turn invalid, with a sentence. `tools` of `tsr_gym_envs.database.domains`
    returns the tools of a domain as JSON schemas. ``done()`` ends an episode, as does ``refuse(rule=1)``.

    ## Observation Space
    Text: first the request, the rules and the tools; then what the last call returned. With
    ``observation_mode="compact"`` these are few lower-case words between blanks, for very small models.

    ## Starting State
    A task of the split, drawn with the seed. ``reset(options={"task": number})`` gives the task of that number.

    ## Rewards
    1 at the end of the episode if the task was solved, else 0. It is solved if the database equals the one that the
    right calls leave, in any order of writes; no call broke a rule; and the episode ended with ``done``, or,
    where the rules allow nothing of the request, with ``refuse`` and the right rule, after its row was shown.

    ## Episode End
    Terminates with ``done`` or ``refuse``; truncates after `max_turns`.

    ## Information
    As every `TextEnv`; also ``task``, ``domain``, ``changed`` (how many rows differ from the beginning) and
    ``rule_broken``.

    ## Arguments
    | keyword | default | what |
    |---|---|---|
    | `domain` | ``all`` | ``shop``, ``flights``, ``hospital``, ``library``, or a list of them |
    | `depth` | (1, 4) | calls before the end of the plan: a number from 1 to 8, or least and most |
    | `people` | 10 | size of a database: people, as many things, and twice as many records |
    | `num_worlds` | 64 | how many databases a domain has |
    | `split` | ``all`` | ``train``, ``valid`` or ``test``, which share no task up to names of rows and people |
    | `sql` | False | whether ``query(sql="SELECT ...")`` is a tool, which can only read |
    | `observation_mode` | ``text`` | or ``compact`` |
    | `max_turns` | None: 2 * depth + 4 | turns of an episode |
    | `preset` | ``default`` | ``paper`` is the same |
    | `render_mode` | None | or ``ansi`` |

    ## Version History
    v0: first version.
    """

    draws_noise = False
    guide = Guide("tsr_gym.wrappers:DatabaseScore")
    model_forms = frozenset({"observation_mode"})

    def __init__(self, settings: DatabaseSettings, *, render_mode: str | None = None) -> None:
        max_turns = settings.max_turns or 2 * settings.depths[1] + _SPARE_TURNS
        super().__init__(settings, limits=Limits(max_turns), separator=None, render_mode=render_mode)
        self.settings = settings
        self.instructions = INSTRUCTIONS
        self._is_compact = settings.observation_mode == "compact"
        self.tools = tuple(tsr_gym.Tool(**schema) for schema in schemas_of(settings.domains, sql=settings.sql))

    def task(self, state: DatabaseState) -> Task:
        """Return the task of a state."""
        settings = self.settings
        return task_of(
            state.task, settings.domains, settings.depths, settings.people, settings.num_worlds, settings.split
        )

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> DatabaseState:
        """Return the beginning of a task, that of the options or else a drawn one.

        Raises:
            ConfigError: An option is unknown, or no number of a task.
        """
        if unknown := sorted(set(options) - {"task"}):
            raise ConfigError(f"wanted reset options among ['task'], got {unknown}")
        number = options.get("task", int(rng.integers(_NUM_TASKS)))
        if not isinstance(number, int) or not 0 <= number < _NUM_TASKS:
            raise ConfigError(f"wanted a task from 0 to {_NUM_TASKS - 1}, got {number!r}")
        state = DatabaseState(number)
        self.task(state)
        return state

    def transition(self, state: DatabaseState, action: str, rng: np.random.Generator) -> Step:
        """Return the effect of a call."""
        task = self.task(state)
        world = task.database
        call = read_call(action.strip(), world.domain, self.settings.sql)
        if reason := call.reason or self._missing(task, state, call):
            return Step(state._replace(reply=(reason, "", ())), 0.0, False, invalid(reason))
        tool, args = call.tool, dict(call.args)
        if tool.verb == "end":
            after = state._replace(ended=write_call(tool, call.args, compact=False), reply=("ended", "", ()))
            return Step(after, float(self.is_success(after)), True, {})
        if tool is QUERY:
            return self._query(state, task, str(args["sql"]))
        if not tool.writes:
            rows = world.read(state.changes, tool, args)
            shown = tuple(sorted({*state.shown, *(str(row[0]) for row in rows)}))
            reply = ("" if rows else "nothing", tool.table, rows)
            return Step(state._replace(shown=shown, reply=reply), 0.0, False, {})
        broken = tool.rule.text if tool.rule and world.breaks_rule(state.changes, tool, args) else ""
        changes = world.write(state.changes, tool, args)
        after = state._replace(changes=changes, broken=state.broken or broken, reply=("ok", "", ()))
        return Step(after, 0.0, False, {})

    def _missing(self, task: Task, state: DatabaseState, call: Call) -> str:
        """Return why the rows of a call do not fit; "" if they do."""
        world, tool = task.database, call.tool
        for param, (_, value) in zip(tool.params, call.args, strict=True):
            if param.table and world.row(state.changes, param.table, str(value)) is None:
                return f"there is no {world.domain.table(param.table).noun} {value}"
        if tool.verb == "create":
            name = "-".join((world.domain.table(tool.table).letter, *(str(value).upper() for _, value in call.args)))
            if world.row(state.changes, tool.table, name) is not None:
                return f"there is a {world.domain.table(tool.table).noun} {name} already"
        return ""

    def _query(self, state: DatabaseState, task: Task, sql: str) -> Step:
        try:
            rows = task.database.query(state.changes, sql)
        except (sqlite3.Error, sqlite3.Warning) as error:
            reason = f"SQLite refuses the query: {str(error)[:200]}"
            return Step(state._replace(reply=(reason, "", ())), 0.0, False, invalid(reason))
        return Step(state._replace(reply=("" if rows else "nothing", "", rows)), 0.0, False, {})

    def observe(self, state: DatabaseState) -> str:
        """Return the request, or what the last call returned."""
        word, table, rows = state.reply
        task = self.task(state)
        if not word and not rows:
            return compact_request(task) if self._is_compact else self._letter(task)
        domain = task.database.domain
        if self._is_compact:
            noun = domain.table(table).noun if table else "row"
            lines = [" ".join([noun, *(str(value).lower() for value in row)]) for row in rows]
            return " ; ".join(lines) or (word if word in ("ok", "nothing", "ended") else "bad")
        names = domain.table(table).names if table else ()
        texts = [", ".join(map(str, row)) for row in rows]
        if names:
            texts = [", ".join(f"{name}: {value}" for name, value in zip(names, row, strict=True)) for row in rows]
        return "\n".join(texts) or f"{word[:1].upper()}{word[1:]}."

    def _letter(self, task: Task) -> str:
        domain = task.database.domain
        rules = [f"{number}. {rule.text}" for number, rule in enumerate(rules_of(domain), 1)]
        tools = [
            f"- {tool.name}({', '.join(param.name for param in tool.params)}): {tool.description}"
            for tool in (*tools_of(domain).values(), *((QUERY,) if self.settings.sql else ()))
        ]
        wishes = [_wish(task, request) for request in task.requests]
        return "\n".join(("Request: please " + ", and ".join(wishes) + ".", "Rules:", *rules, "Tools:", *tools))

    def state_key(self, state: DatabaseState) -> bytes:
        """Return the bytes of the task, the database in logical order, the rows shown, and the end."""
        return encode((state.task, state.changes, state.shown, state.broken, state.ended))

    def is_success(self, state: DatabaseState) -> bool:
        """Return whether the task is solved."""
        if not state.ended or state.broken:
            return False
        task = self.task(state)
        if state.changes != task.goal:
            return False
        step = next_step(task, state.changes, frozenset(state.shown))
        if step is not None and step.tool.name == "refuse":
            return state.ended == write_call(*step, compact=False)
        return bool(task.goal) and state.ended == "done()"

    def legal_actions(self, state: DatabaseState) -> tuple[str, ...]:
        """Return plausible calls: with ids and values that the request or the rows shown contain."""
        if state.ended:
            return ()
        task = self.task(state)
        return plausible(task, state, compact=self._is_compact)

    def optimal_turn(self, state: DatabaseState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the next call of the plan; None if the task is lost."""
        if state.ended or state.broken:
            return None
        task = self.task(state)
        if cannot_be_undone(task, state.changes):
            return None
        step = next_step(task, state.changes, frozenset(state.shown))
        return None if step is None else write_call(*step, compact=self._is_compact)

    def dead_end(self, state: DatabaseState) -> str | None:
        """Return that a rule was broken, or that a change can no longer be undone; None otherwise."""
        if state.broken:
            return f"a rule was broken: {state.broken}"
        wrong = cannot_be_undone(self.task(state), state.changes)
        return "a change that was not asked for cannot be undone" if wrong else None

    def form(self, state: DatabaseState) -> bytes:
        """Return the bytes of the task that do not depend on the names of rows and people."""
        task = self.task(state)
        return form_of(task.database, task.requests)

    def teaching(self) -> Teaching:
        """Return the teaching of short calls in words, in one shop."""
        words, names = vocabulary(self.settings.domains, self.settings.people)
        return Teaching(
            teacher_turn=teacher_turn,
            poor_turn=poor_turn,
            accepts=lambda env: bool(env.is_success(env.state)),
            env_settings={"observation_mode": "compact", "domain": "shop", "depth": 1},
            history="full",
            max_tokens=12,
            words=words,
            permutable=names,
            permute=0.5,
            copying=True,
            learn={"algorithm": "grpo", "lr": 3e-4, "filter": "mixed_success", "groups": 16, "trajectories": 8},
        )

    def _facts(self, state: DatabaseState) -> dict[str, Any]:
        return {
            "success": self.is_success(state),
            "task": state.task,
            "domain": self.task(state).domain,
            "changed": len(state.changes),
            "rule_broken": bool(state.broken),
        }


def _wish(task: Task, request: Request) -> str:
    """Return a request in words."""
    domain = task.database.domain
    tool = tools_of(domain)[request.tool]
    texts = {}
    for param in tool.params:
        value = dict(request.given).get(param.name)
        noun = domain.table(param.table).noun if param.table else ""
        if value is None:
            thing = (
                f"{noun} {request.person.title()}"
                if request.detail is None
                else (f"the {noun} of {request.person.title()} with the {domain.detail} {request.detail}")
            )
            texts[param.name] = thing
        else:
            texts[param.name] = f"{noun} {value}".strip()
    return tool.wish.format(**texts) + (" (the rules were checked and allow it)" if request.checked else "")


def compact_request(task: Task) -> str:
    """Return the requests of a task in compact words."""
    parts = []
    for request in task.requests:
        named = ["of", request.person, *([] if request.detail is None else [request.detail])] if request.person else []
        words = [*request.tool.split("_"), *named, *(value for _, value in request.given)]
        parts.append(" ".join([*(str(word).lower() for word in words), *(["checked"] if request.checked else [])]))
    return "ask " + " ; ".join(parts)


def plausible(task: Task, state: DatabaseState, *, compact: bool) -> tuple[str, ...]:
    """Return calls made of what was read: looks at rows, the requested tools, and the ends."""
    world, domain = task.database, task.database.domain
    tools = tools_of(domain)
    ids = {str(value) for request in task.requests for _, value in request.given}
    for table in domain.tables:
        for name in state.shown:
            if row := world.row(state.changes, table.name, name):
                ids |= {
                    name,
                    *(str(cell) for cell, column in zip(row[1:], table.columns, strict=True) if column.refers),
                }
    read = {
        table.name: [name for name in sorted(ids) if world.row(state.changes, table.name, name)]
        for table in domain.tables
    }
    calls: dict[str, None] = {}

    def add(tool: Tool, args: Args) -> None:
        calls[write_call(tool, args, compact=compact)] = None

    for request in task.requests:
        if request.person:
            add(tools[f"find_{domain.people.noun}"], (("name", request.person),))
    for tool in tools.values():
        if tool.verb in ("list", "show"):
            for name in read[tool.params[0].table]:
                add(tool, ((tool.params[0].name, name),))
    for request in task.requests:
        tool = tools[request.tool]
        first, *rest = tool.params
        for name in read[first.table]:
            args: list[tuple[str, Value]] = [(first.name, name)]
            args += [(param.name, dict(request.given)[param.name]) for param in rest]
            made = "-".join((domain.table(tool.table).letter, *(str(value).upper() for _, value in args)))
            if tool.verb != "create" or world.row(state.changes, tool.table, made) is None:
                add(tool, tuple(args))
    add(tools["done"], ())
    for number in range(1, len(rules_of(domain)) + 1):
        add(tools["refuse"], (("rule", number),))
    return tuple(calls)


def stated_share(task: Task, changes: Changes, shown: Sequence[str], broken: str) -> float:
    """Return the share of the stated conditions that a database fulfils; -1 where it breaks what was stated.

    A request counts 1 if it is fulfilled, or the rules forbid it and its row was shown; else half of the share of its
    rows that were shown. Read from the requests, the rules and the database, never from the hidden goal.
    """
    world, total = task.database, 0.0
    allowed: set[str] = set()
    for request in task.requests:
        tool, args = tools_of(world.domain)[request.tool], arguments(world, request)
        names = [str(value) for param, (_, value) in zip(tool.params, args, strict=True) if param.table]
        allowed.update(names)
        ruled = ruled_row(world, tool, args)
        forbidden = world.breaks_rule((), tool, dict(args))
        if is_fulfilled(world, changes, tool, args) or (forbidden and ruled is not None and ruled[1] in shown):
            total += 1.0
        else:
            total += 0.5 * sum(name in shown for name in names) / len(names)
    strays = [
        name
        for table, name, _ in changes
        if name in world.rows[table] and name not in allowed and not _effects(world, table)
    ]
    return -1.0 if broken or strays else total / len(task.requests)


def _effects(world: Any, table: str) -> bool:
    """Return whether calls change rows of a table that their arguments do not name."""
    return any(f"UPDATE {table} " in effect for tool in world.domain.writers for effect in tool.effects)


def make(*, preset: str = "default", render_mode: str | None = None, **settings: Any) -> DatabaseEnv:
    """Make the environment behind ``gym.make("tsr/Database-v0", ...)``; `DatabaseEnv` documents the keywords.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    made = settings_from(DatabaseSettings, {"default": {}, "paper": {}}, preset, settings, discrete={}, arrays=())
    return DatabaseEnv(made, render_mode=render_mode)
