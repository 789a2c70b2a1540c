"""What it costs to go back in a database: changed rows against whole databases, at 20, 65 and 508 kB.

Every unit of the first three sides keeps the state of a database, changes a row, and goes back: as `tsr_gym` does, by
SQLite's `serialize` and `deserialize`, and by a copy with `backup`. A ``step`` is one call of the environment.
Run: python -m benchmarks.database_costs [--quick]
"""

import sqlite3
from functools import partial
from typing import Any

import gymnasium as gym

import tsr_gym
from benchmarks.measure import Work, alternate, insist, run_timed, write_result
from tsr_gym_envs.database.domains import SHOP
from tsr_gym_envs.database.world import World, world_of

# People of the shop by the size of its database in kB.
PEOPLE = {20: 20, 65: 280, 508: 3000}
UPDATE = "UPDATE orders SET status = 'cancelled' WHERE id = 'O1'"
ROUNDS, UNITS = 7, 300


def _plain(world: World) -> sqlite3.Connection:
    """Return a connection without triggers in the state of a world."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with world.at(()) as connection:
        copy.deserialize(connection.serialize())
    return copy


def _rows(world: World, units: int) -> None:
    for _ in range(units):
        world.write((), SHOP.writers[0], {"order": "O1"})
        with world.at(()):
            pass


def _bytes(connection: sqlite3.Connection, units: int) -> None:
    for _ in range(units):
        data = connection.serialize()
        connection.execute(UPDATE)
        connection.deserialize(data)


def _backup(connection: sqlite3.Connection, units: int) -> None:
    for _ in range(units):
        copy = sqlite3.connect(":memory:")
        connection.backup(copy)
        connection.execute(UPDATE)
        copy.backup(connection)
        copy.close()


def _snapshots(env: gym.Env[Any, Any], units: int) -> None:
    for _ in range(units):
        tsr_gym.restore(env, tsr_gym.snapshot(env))


def _steps(env: gym.Env[Any, Any], units: int) -> None:
    snap = tsr_gym.snapshot(env)
    for _ in range(units):
        env.step("cancel order o1")
        tsr_gym.restore(env, snap)


def costs(kilobytes: int) -> dict[str, Any]:
    """Return microseconds of processor time by side at a size, and the size in bytes."""
    people = PEOPLE[kilobytes]
    world = world_of("shop", people, 0)
    env = gym.make("tsr/Database-v0", domain="shop", people=people, num_worlds=1, disable_env_checker=True)
    env.reset(seed=0)
    plain = _plain(world)
    size = len(plain.serialize())
    before = plain.execute("SELECT * FROM orders ORDER BY id").fetchall()
    for work in (partial(_bytes, plain), partial(_backup, plain)):
        work(1)
        insist(plain.execute("SELECT * FROM orders ORDER BY id").fetchall() == before, "the row is as before")
    works = {
        "rows": Work(partial(_rows, world, UNITS), UNITS, "changed rows"),
        "bytes": Work(partial(_bytes, plain, UNITS), UNITS, "serialize and deserialize"),
        "backup": Work(partial(_backup, plain, UNITS), UNITS, "backup there and back"),
        "snapshot and restore": Work(partial(_snapshots, env, UNITS), UNITS, "of the environment"),
        "step and restore": Work(partial(_steps, env, UNITS), UNITS, "of the environment"),
    }
    rates = alternate(works, ROUNDS)
    return {"bytes_of_database": size} | {
        name: {"microseconds": round(1e6 / rate["median"], 2), "how": rate["how"]} for name, rate in rates.items()
    }


def main() -> None:
    """Measure every size and write the result."""
    write_result(
        "database_costs", {"sqlite": sqlite3.sqlite_version, "by_kB": {str(size): costs(size) for size in PEOPLE}}
    )


if __name__ == "__main__":
    run_timed(main)
