"""The database world: exact states, plans that solve, rules that cannot be unbroken, hostile calls, and the guide."""

import pickle
import sqlite3

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym
from tests.conftest import deep
from tsr_gym import ConfigError
from tsr_gym.snapshots import Snapshot
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.wrappers import DatabaseScore
from tsr_gym_envs.database.calls import read_call
from tsr_gym_envs.database.domains import DOMAINS, rules_of, tools, tools_of
from tsr_gym_envs.database.env import DatabaseState
from tsr_gym_envs.database.tasks import arguments, form_of, plan_length
from tsr_gym_envs.database.world import World, world_of
from tsr_gym_envs.settings import in_split


def made(**settings):
    return gym.make("tsr/Database-v0", disable_env_checker=True, **settings).unwrapped


def solve(env):
    """Play the plan to the end and return the number of its calls and the last result."""
    for number in range(1, 20):
        result = env.step(env.optimal_turn(env.state, None, None))
        if result[2]:
            return number, result
    raise AssertionError("the plan does not end")


@pytest.mark.parametrize("settings", [{}, {"observation_mode": "compact", "domain": "shop", "depth": 1}, {"sql": True}])
def test_both_contracts_hold(settings):
    env = gym.make("tsr/Database-v0", **settings)
    check_text_env(env)
    check_snapshot(env, other_processes=False, seeds=(1,))


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_plan_solves_every_depth_with_that_many_calls(domain):
    for depth in range(1, 9):
        for mode in ("text", "compact"):
            env = made(domain=domain, depth=depth, observation_mode=mode)
            for seed in range(3):
                env.reset(seed=seed)
                calls, (_, reward, *_, info) = solve(env)
                assert (calls, reward, info["success"]) == (depth + 1, 1.0, True)


def test_doing_nothing_fails_and_random_play_rarely_succeeds():
    env, wins = made(), 0
    for seed in range(100):
        for end in ("done()", "refuse(rule=1)", "refuse(rule=2)", "refuse(rule=3)"):
            env.reset(seed=seed)
            assert env.step(end)[1:3] == (0.0, True)
        env.reset(seed=seed)
        rng, ended = np.random.default_rng(seed), False
        while not ended:
            names = env.legal_actions(env.state)
            _, _, terminated, truncated, info = env.step(names[rng.integers(len(names))])
            ended = terminated or truncated
        wins += info["success"]
    assert wins <= 10


def writes(world, number, rng):
    """Yield random calls that write and can be made."""
    changes = ()
    for _ in range(number):
        tool = world.domain.writers[rng.integers(len(world.domain.writers))]
        args = {}
        for param in tool.params:
            values = param.values or tuple(world.rows[param.table])
            args[param.name] = values[rng.integers(len(values))]
        name = "-".join((world.domain.table(tool.table).letter, *map(str, args.values())))
        if tool.verb != "create" or world.row(changes, tool.table, name.upper()) is None:
            changes = world.write(changes, tool, args)
            yield tool, args, changes


def dump(connection, domain):
    return {table.name: connection.execute(f"SELECT * FROM {table.name}").fetchall() for table in domain.tables}


def full(world, changes):
    """Return the tables of a state by the definition: the generated rows, with the changed rows in their places."""
    rows = {table.name: dict(world.rows[table.name]) for table in world.domain.tables}
    for table, name, row in changes:
        rows[table][name] = row
    return {table: sorted(by_name.values()) for table, by_name in rows.items()}


@pytest.mark.parametrize("number", [75, deep(2500)])
@pytest.mark.parametrize("name", DOMAINS)
def test_going_back_leaves_no_difference(name, number):
    world, rng = World(name, 6, 0), np.random.default_rng(1)
    states = [()]
    for _, _, changes in writes(world, number, rng):
        states.append(changes)
        back = states[rng.integers(len(states))]
        with world.at(back) as connection:
            assert dump(connection, world.domain) == full(world, back)
    with world.at(()) as connection:
        assert dump(connection, world.domain) == dump(World(name, 6, 0)._connection, world.domain)


def test_equal_databases_are_equal_states_whatever_the_order_of_writes():
    world = world_of("shop", 10, 0)
    cancel, street = world.domain.writers[0], world.domain.writers[2]
    other = next(street for street in ("elm", "oak") if street != world.value((), "orders", "O2", "street"))
    calls = [(cancel, {"order": "O1"}), (street, {"order": "O2", "street": other}), (cancel, {"order": "O3"})]
    ends = []
    for order in (calls, calls[::-1]):
        changes = ()
        for tool, args in order:
            changes = world.write(changes, tool, args)
        ends.append(changes)
    assert ends[0] == ends[1]
    assert len(ends[0]) == 3
    back = {"order": "O2", "street": world.value((), "orders", "O2", "street")}
    assert len(world.write(ends[0], street, back)) == 2
    env = made(domain="shop")
    keys = {
        env.state_key(DatabaseState(1, changes, reply=(word, "", ()))) for changes, word in zip(ends, "ab", strict=True)
    }
    assert len(keys) == 1


def test_snapshots_pass_bytes_and_environments_pickle():
    env = made(depth=4)
    env.reset(seed=1)
    env.step(env.optimal_turn(env.state, None, None))
    twin = pickle.loads(pickle.dumps(env))
    twin.restore(Snapshot.from_bytes(env.snapshot().to_bytes()))
    assert twin.state == env.state
    assert solve(twin)[1] == solve(env)[1]
    assert pickle.loads(pickle.dumps(world_of("shop", 10, 3))) is world_of("shop", 10, 3)


def test_a_broken_rule_or_a_stray_change_loses_the_task():
    env, lost = made(depth=3), set()
    for seed in range(60):
        env.reset(seed=seed)
        task = env.task(env.state)
        for request in task.requests:
            tool, args = tools_of(task.database.domain)[request.tool], arguments(task.database, request)
            if task.database.breaks_rule((), tool, dict(args)):
                env.step(f"{' '.join(tool.words)} {' '.join(str(value) for _, value in args)}")
                assert env.dead_end(env.state)
                assert env.optimal_turn(env.state, None, None) is None
                assert env.step("done()")[1] == 0.0
                lost.add(tool.rule.text)
                break
    assert len(lost) >= 4
    env = made(domain="shop", depth=1)
    env.reset(seed=0)
    stray = next(name for name, row in env.task(env.state).database.rows["orders"].items() if row[5] == "paid")
    task = env.task(env.state)
    if all(stray not in dict(request.given).values() for request in task.requests):
        env.step(f"cancel order {stray}")
        assert env.dead_end(env.state)


def test_a_wrong_street_is_set_right_by_the_plan():
    env = made(domain="shop", depth=3)
    env.reset(seed=0)
    rows = env.task(env.state).database.rows["orders"]
    env.step(f"change street O5 {next(name for name in ('elm', 'oak') if name != rows['O5'][6])}")
    assert env.dead_end(env.state) is None
    assert solve(env)[1][1] == 1.0


HOSTILE = [
    "cancel_order", "", "drop_table(order=\"O1\")", "cancel_order(order=\"O1'; DROP TABLE orders; --\")",
    'cancel_order(order="O1\0")', "cancel_order(order=" + "9" * 400 + ")", 'show_order(order="\ud800")', "\ud800",
    "cancel_order(order=" + "(" * 500 + ")", "x" * 1_000_000, 'find_customer(name="' + "a" * 1_000_000 + '")',
    "refuse(rule=99)", "refuse(rule=-1)", "refuse(rule=1e9)", "cancel_order(order=O999)", "cancel order o1 o2",
    "cancel_order(order=O1, order=O2)", 'change_street(order="O1", street="moon")', "query(sql='SELECT 1')",
    "place_order(customer=O1, item=lamp)", "list_orders()", "done(1)", "cancel_order(**{'order': 'O1'})",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_call_is_an_invalid_turn_that_changes_nothing(text):
    env = made(domain="shop")
    env.reset(seed=0)
    observation, reward, terminated, _, info = env.step(text)
    assert (reward, terminated, info["action_is_valid"], env.state.changes) == (0.0, False, False, ())
    assert info["invalid_reason"]
    assert len(observation) < 2000


QUERIES = [
    "ATTACH DATABASE '/tmp/tsr_gym.db' AS other", "PRAGMA temp_store_directory = '/tmp'", "VACUUM INTO '/tmp/v'",
    "SELECT load_extension('x')", "DELETE FROM orders", "UPDATE orders SET days = 1", "CREATE TABLE t (x)",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c", "SELECT random()",
    "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e", "SELECT writefile(1, 2)",
    "SELECT 1; SELECT 2", "no sql", "SELECT zeroblob(1000000)",
]  # fmt: skip


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_can_only_read_within_its_limit(sql):
    env = made(domain="shop", sql=True)
    env.reset(seed=0)
    *_, info = env.step(f'query(sql="{sql}")')
    assert not info["action_is_valid"]
    assert "SQLite refuses" in info["invalid_reason"]
    world = world_of("shop", 10, 0)
    with world.at(()) as connection, pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
        connection.execute("ATTACH DATABASE ':memory:' AS other")
    observation, *_, info = env.step('query(sql="SELECT count(*) FROM orders")')
    assert (observation, info["action_is_valid"]) == ("20", True)


def test_splits_share_no_task_up_to_names():
    forms = {}
    for split in ("train", "valid", "test"):
        env = made(split=split, depth=2)
        for seed in range(40):
            env.reset(seed=seed)
            task = env.task(env.state)
            assert in_split(form_of(task.database, task.requests), split)
            forms.setdefault(split, set()).add(env.form(env.state))
            assert plan_length(task.database, task.requests)[0] == 2
    assert not forms["train"] & forms["test"]
    assert not forms["train"] & forms["valid"]


def test_the_guide_reads_the_request_and_never_the_goal(monkeypatch):
    env = DatabaseScore(gym.make("tsr/Database-v0", disable_env_checker=True, depth=4))
    base = env.unwrapped
    task_of = type(base).task
    for seed in range(10):
        env.reset(seed=seed)
        scores, hidden = [], []
        while not base.state.ended:
            before = base.state
            *_, info = env.step(base.optimal_turn(base.state, None, None))
            scores.append(info["score"])
            with monkeypatch.context() as patched:
                patched.setattr(type(base), "task", lambda self, state: task_of(self, state)._replace(goal=()))
                hidden.append(env.score(before, "", base.state, 0.0))
        assert scores == hidden == sorted(scores)
        assert scores[-1] == 1.0
        assert env.score(base.state, "", base.state._replace(broken="a rule"), 0.0) == -1.0


def test_every_tool_has_a_schema_and_both_forms_of_a_call_agree():
    for name, domain in DOMAINS.items():
        schemas = tools(name)
        assert [schema["name"] for schema in schemas] == list(tools_of(domain))
        assert 8 <= len(schemas) <= 12
        assert len(rules_of(domain)) == 3
        assert all(set(schema["parameters"]["required"]) == {*schema["parameters"]["properties"]} for schema in schemas)
    shop = DOMAINS["shop"]
    assert read_call("change street o3 elm", shop) == read_call("change_street(\"O3\", street='elm')", shop)


@pytest.mark.parametrize(
    "settings", [{"domain": "bank"}, {"depth": 9}, {"depth": (3, 2)}, {"people": 1}, {"split": "x"}, {"max_turns": 0}]
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        made(**settings)
    with pytest.raises(ConfigError):
        made().reset(seed=0, options={"task": "first"})
    assert tsr_gym.registration.env_id("database") == "tsr/Database-v0"
