"""Speed of the grid worlds and their peers: one process, one thread, the same inputs, outputs compared first.

Everything runs on one processor core. Peers that are not installed are named and skipped; `pip install
'tsr-gym[envs,bench]'` brings them. A function per peer first checks that it plays our game, then returns what to time;
where the package is not installed it raises MissingPeer. Rows on deadlocks and the solver need the levels in ../shared.
Run: python -m benchmarks.grid_speed [--quick]
"""

import copy
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from benchmarks.measure import SHARED, MissingPeer, Work, insist, installed, require_peer, run_timed, write_result
from tsr_gym_envs.compiled import words_of
from tsr_gym_envs.frozen_lake.discrete_env import tile_codes as lake_codes
from tsr_gym_envs.frozen_lake.rules import MAPS, FrozenLakeState, transition_table
from tsr_gym_envs.frozen_lake.vector_env import neighbours, slide_all
from tsr_gym_envs.sokoban.discrete_env import BOX, BOX_ON_GOAL, GOAL, PLAYER, PLAYER_ON_GOAL, WALL, tile_codes
from tsr_gym_envs.sokoban.levels import TitledLevel, to_collection
from tsr_gym_envs.sokoban.rooms import generate_room
from tsr_gym_envs.sokoban.vector_env import push_all

NUM_ENVS = 1024
NUM_STEPS = 256
NUM_ROOMS = 64
REPEATS = 7
PEERS = ("jumanji", "jax", "envpool", "gym-sokoban")
CHECKED_STEPS = 100
# Jumanji's numbers of up, down, left and right; its documentation has them in another order.
_JUMANJI = np.array([0, 2, 3, 1], np.int32)
Peer = Callable[[], Work]


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        what: What is measured.
        unit: Of the numbers.
        wanted: What the project set itself.
        ours: What came.
        peers: What came of others, a text where nothing did.
        how: What was done, by name.
    """

    what: str
    unit: str
    wanted: str
    ours: float
    peers: dict[str, float | str]
    how: dict[str, str]


def rate_of(work: Work, repeats: int = REPEATS) -> float:
    """Return the median over repeats of units per second of processor time, after one run that is not timed."""
    work.run()
    rates = []
    for _ in range(repeats):
        started = process_time()
        work.run()
        rates.append(work.units / (process_time() - started))
    return median(rates)


def row(
    what: str, unit: str, wanted: str, ours: Work, peers: dict[str, Peer], number: Callable[[float], float] = float
) -> Row:
    """Time our work and that of the peers that are installed; `number` turns units per second into the table's unit."""
    how, came = {"ours": ours.how}, dict[str, float | str]()
    for name, peer in peers.items():
        try:
            work = peer()
        except MissingPeer as error:
            came[name] = f"skipped: {error}"
            print(f"SKIPPED {what}, {name}: {error}", file=sys.stderr)
            continue
        came[name], how[name] = number(rate_of(work, repeats=3)), work.how
    return Row(what, unit, wanted, number(rate_of(ours)), came, how)


def millions(rate: float) -> float:
    """Return a rate in millions."""
    return rate / 1e6


def microseconds(rate: float) -> float:
    """Return the time of one unit in microseconds."""
    return 1e6 / rate


def actions_for(num_envs: int) -> Any:
    """Return uniformly random actions `[NUM_STEPS, num_envs]`."""
    return np.random.default_rng(0).integers(4, size=(NUM_STEPS, num_envs))


def sokoban_rules() -> Row:
    """Sokoban's rules on many boards, nothing else."""
    rooms = [room for room in sokoban_rooms(NUM_ROOMS) for _ in range(NUM_ENVS // NUM_ROOMS)]
    starts = np.stack([tile_codes(room, (10, 10)).ravel() for room in rooms])
    places = np.array([(room.player, (room.boxes & ~room.level.goals).bit_count(), 10, 10) for room in rooms], np.int32)
    rewards, flags = np.zeros(NUM_ENVS), [np.zeros(NUM_ENVS, bool) for _ in range(3)]
    step, pay, actions = np.array((-10, 10, -1, 1)), np.array((-0.1, 1.0, 10.0)), actions_for(NUM_ENVS)

    def run() -> None:
        boards, current = starts.copy(), places.copy()
        for moves in actions:
            push_all(boards, current, moves, flags[0], step, pay, rewards, flags[1], flags[2])

    how = f"push_all on {NUM_ENVS} boards of 10x10 with 4 boxes, no end of episodes"
    return row("Sokoban batch, rules only", "M steps/s", ">= 100", Work(run, actions.size, how), {}, millions)


def stepping(env: Any, actions: Any, how: str) -> Work:
    """Return the work of stepping a vector environment."""
    env.reset(seed=0)

    def run() -> None:
        for moves in actions:
            env.step(moves)

    return Work(run, actions.size, how)


def sokoban_vector(folder: Path) -> Row:
    """Sokoban's vector environment with boards as observations, automatic reset and infos."""
    levels = folder / "levels.xsb"
    levels.write_text(to_collection(TitledLevel("", room) for room in sokoban_rooms(NUM_ROOMS)), encoding="utf-8")
    env, actions = gym.make_vec("tsr/Sokoban-v0", num_envs=NUM_ENVS, levels=str(levels)), actions_for(NUM_ENVS)

    def jumanji() -> Work:
        env.reset(seed=0)
        return jumanji_batch(env, actions)

    peers = {"jumanji": jumanji, "envpool": lambda: envpool_batch("Sokoban-v0", actions[:16])}
    how = "make_vec with levels=FILE, NextStep, infos included"
    return row(
        "Sokoban vector env, grid observation and autoreset",
        "M steps/s",
        ">= 20, >= 4x jumanji",
        stepping(env, actions, how),
        peers,
        millions,
    )


def sokoban_text() -> list[Row]:
    """One step of the text form at a time, observation included."""
    settings: dict[str, Any] = {"max_turns": None, "max_actions": None, "max_actions_per_turn": None}
    peers = {
        "gym-sokoban as RAGEN": lambda: gym_sokoban_steps((6, 6), 1, rendered=True, num=100),
        "gym-sokoban unrendered": lambda: gym_sokoban_steps((6, 6), 1, rendered=False, num=2000),
    }
    rows = []
    for what, wanted, env in (
        ("bare env", ">= 500", gym.make("tsr/Sokoban-v0", **settings).unwrapped),
        ("gym.make's wrappers", ">= 150", gym.make("tsr/Sokoban-v0", **settings)),
    ):
        rng = np.random.default_rng(0)
        names = [("Up", "Down", "Left", "Right")[number] for number in rng.integers(4, size=5000)]
        # An episode that is solved would end; this room is not solved by these actions.
        level = generate_room(0, solution_length=(10, 10)).to_xsb()

        def run(env: Any = env, names: list[str] = names, level: str = level) -> None:
            env.reset(options={"level": level})
            for name in names:
                if env.step(name)[2]:
                    env.reset(options={"level": level})

        work = Work(run, len(names), "step(text) on a 6x6 room, grid text observation")
        rows.append(row(f"Sokoban text step, {what}", "k steps/s", wanted, work, peers, lambda rate: rate / 1e3))
        peers = {}
    return rows


def snapshots() -> list[Row]:
    """Snapshot and restore, of one environment and of a batch."""
    rows = []
    for name, wanted in (("Sokoban", "<= 2"), ("FrozenLake", "<= 5")):
        env = gym.make(f"tsr/{name}-v0").unwrapped
        env.reset(seed=0)
        start = env.snapshot()

        def run(env: Any = env, start: Any = start) -> None:
            for _ in range(2000):
                env.restore(start)
                env.snapshot()

        def deepcopied() -> Work:
            peer = gym_sokoban(1, (6, 6), 1)
            return Work(lambda: [copy.deepcopy(peer) for _ in range(50)], 50, "copy.deepcopy of gym-sokoban's env")

        peers: dict[str, Peer] = {"deepcopy": deepcopied} if name == "Sokoban" else {}
        work = Work(run, 2000, "env.restore(snap); env.snapshot()")
        rows.append(row(f"{name} snapshot + restore, one env", "us", wanted, work, peers, microseconds))
    for name in ("Sokoban", "FrozenLake"):
        settings = {"num_levels": NUM_ROOMS, "max_actions": 120}
        settings |= {"dim": (10, 10), "num_boxes": 4, "generator": "gym-sokoban"} if name == "Sokoban" else {}
        batch: Any = gym.make_vec(f"tsr/{name}-v0", num_envs=NUM_ENVS, **settings)
        batch.reset(seed=0)

        def run_batch(batch: Any = batch) -> None:
            for _ in range(200):
                batch.restore(batch.snapshot())

        work = Work(run_batch, 200 * NUM_ENVS, f"{NUM_ENVS} environments, boards, counters and random streams")
        rows.append(
            row(f"{name} snapshot + restore, per env of a batch", "ns", "<= 20", work, {}, lambda rate: 1e9 / rate)
        )
    return rows


def rooms(quick: bool) -> list[Row]:
    """Rooms of gym-sokoban's generator, bit for bit."""
    rows = []
    for dim, num_boxes, wanted, num, num_peer in (
        ((6, 6), 1, ">= 5000", 2000, 50),
        ((10, 10), 4, ">= 30", 20, 0 if quick else 2),
    ):

        def run(dim: tuple[int, int] = dim, num_boxes: int = num_boxes, num: int = num) -> None:
            for seed in range(num):
                generate_room(seed, generator="gym-sokoban", dim=dim, num_boxes=num_boxes)

        def peer(dim: tuple[int, int] = dim, num_boxes: int = num_boxes, num: int = num_peer) -> Work:
            return gym_sokoban_rooms(dim, num_boxes, range(num))

        peers = {"gym-sokoban": peer} if num_peer else {}
        work = Work(run, num, "generate_room(seed, generator='gym-sokoban')")
        rows.append(row(f"rooms {dim[0]}x{dim[1]}/{num_boxes}, parity mode", "rooms/s", wanted, work, peers))
    return rows


def frozen_lake() -> list[Row]:
    """FrozenLake's rules on many lakes, and its vector environment."""
    settings: dict[str, Any] = {"map_name": "4x4", "obs_type": "discrete"}
    env: Any = gym.make_vec("tsr/FrozenLake-v0", num_envs=NUM_ENVS, **settings)
    board = lake_codes(FrozenLakeState(MAPS["4x4"], 0)).ravel()
    boards, players = np.tile(board, (NUM_ENVS, 1)), np.zeros(NUM_ENVS, np.int64)
    streams = np.stack([words_of(np.random.default_rng(seed)) for seed in range(NUM_ENVS)])
    actions, chances, beside = actions_for(NUM_ENVS), np.full(3, 1 / 3), neighbours((4, 4))
    out = [np.zeros(NUM_ENVS), np.zeros(NUM_ENVS, bool), np.zeros(NUM_ENVS, bool), np.zeros(NUM_ENVS)]
    resting, sums, pay = np.zeros(NUM_ENVS, bool), np.cumsum(chances), np.array((0.0, 0.0, 1.0))

    def run() -> None:
        for moves in actions:
            slide_all(boards, players, streams, moves, resting, beside, sums, chances, pay, *out)

    peers: dict[str, Peer] = {
        "envpool": lambda: envpool_batch("FrozenLake-v1", actions, transition_table(MAPS["4x4"])),
        "gymnasium": lambda: gymnasium_lakes(actions),
    }
    rules = Work(run, actions.size, f"slide_all on {NUM_ENVS} lakes of 4x4 with slip, no end of episodes")
    vector = stepping(env, actions, "make_vec with map_name='4x4', NextStep, infos included")
    return [
        row("FrozenLake batch, rules only", "M steps/s", ">= 50", rules, {}, millions),
        row("FrozenLake vector env", "M steps/s", ">= 10", vector, peers, millions),
    ]


def analysis(quick: bool) -> list[Row]:
    """Deadlock rules and the solver on Boxoban levels; see `benchmarks.sokoban_speed`."""
    if not SHARED.is_dir():
        print(f"SKIPPED deadlocks and solver: {SHARED} is not there", file=sys.stderr)
        return []
    from benchmarks.sokoban_speed import measure_levels, solve_set

    setups, checks, _ = measure_levels(5 if quick else 50)
    solved = solve_set("golden/sokoban/boxoban_labelled.jsonl", "pushes", 4_000_000)
    insist(solved["decided"]["unknown"] == 0, "the solver gave up on a labelled level")
    boards = {"ours": "10x10 with 4 boxes, golden Boxoban levels"}
    return [
        Row("deadlock rules, per push", "us", "<= 5", 1e6 * float(np.mean(checks)), {}, boards),
        Row("deadlock tables, per level", "ms", "<= 20", 1e3 * median(setups), {}, boards),
        Row("push-optimal solution, median", "ms", "<= 20", solved["ms"]["median"], {}, boards),
        Row("labels equal", "of all", "100 %", _share(solved["labels_equal"]), {}, boards),
    ]


def _share(text: str) -> float:
    equal, _, whole = text.partition(" of ")
    return int(equal) / int(whole)


def jumanji_batch(ours: Any, actions: Any) -> Work:
    """Jumanji's Sokoban on the boards of our vector environment, under its own automatic reset."""
    require_peer("jumanji")
    import jax
    import jax.numpy as jnp
    from jumanji.environments.routing.sokoban.env import Sokoban
    from jumanji.environments.routing.sokoban.generator import Generator
    from jumanji.environments.routing.sokoban.types import State
    from jumanji.wrappers import VmapAutoResetWrapper

    boards = ours.observe()
    fixed = jnp.asarray(np.isin(boards, (GOAL, BOX_ON_GOAL, PLAYER_ON_GOAL)) * 2 + (boards == WALL), jnp.uint8)
    stands, lies = np.isin(boards, (PLAYER, PLAYER_ON_GOAL)), np.isin(boards, (BOX, BOX_ON_GOAL))
    variable = jnp.asarray(stands * 3 + lies * 4, jnp.uint8)
    places = jnp.asarray(np.argwhere(stands)[:, 1:], jnp.int32)

    def state_of(index: Any, key: Any) -> Any:
        return State(
            key=key,
            fixed_grid=fixed[index],
            variable_grid=variable[index],
            agent_location=places[index],
            step_count=jnp.array(0, jnp.int32),
        )

    class Given(Generator):
        def __call__(self, rng_key: Any) -> Any:
            key, drawn = jax.random.split(rng_key)
            return state_of(jax.random.randint(drawn, (), 0, len(boards)), key)

    env = Sokoban(generator=Given(), time_limit=120)
    keys = jax.random.split(jax.random.PRNGKey(0), len(boards))
    state = jax.vmap(state_of)(jnp.arange(len(boards)), keys)
    step = jax.jit(jax.vmap(env.step))
    alive, played = np.ones(len(boards), bool), state
    for row in actions[:CHECKED_STEPS]:
        played, timestep = step(played, jnp.asarray(_JUMANJI[row]))
        seen, rewards, terminated, truncated, _ = ours.step(row)
        grids = np.asarray(timestep.observation.grid)
        agrees = ((grids[..., 0] == 4) == np.isin(seen, (BOX, BOX_ON_GOAL))).all(axis=(1, 2))
        agrees &= ((grids[..., 0] == 3) == (seen >= PLAYER)).all(axis=(1, 2))
        agrees &= np.isclose(timestep.reward, rewards, atol=1e-5)
        agrees &= np.asarray(timestep.last()) == (terminated | truncated)
        insist(bool(agrees[alive].all()), "jumanji's boards, rewards or ends are others")
        alive &= ~(terminated | truncated)
    whole = VmapAutoResetWrapper(env)
    jitted = jax.jit(whole.step)
    rows = [jnp.asarray(_JUMANJI[row]) for row in actions]

    def run() -> None:
        current = state
        for row in rows:
            current, timestep = jitted(current, row)
        jax.block_until_ready(timestep)

    run()
    return Work(run, actions.size, "jit(VmapAutoResetWrapper.step), the same boards and actions; resets draw from them")


def envpool_batch(task: str, actions: Any, table: Any = None) -> Work:
    """An environment of envpool on one thread; `table` is what its transitions are compared with."""
    require_peer("envpool")
    import envpool

    env = envpool.make_gymnasium(task, num_envs=actions.shape[1], num_threads=1)
    before, _ = env.reset()
    rows = [row.astype(np.int32) for row in actions]
    over = np.zeros(actions.shape[1], bool)
    for row in rows[:CHECKED_STEPS] if table is not None else ():
        after, _, terminated, truncated, _ = env.step(row)
        for cell, action, there in zip(before[~over], row[~over], after[~over], strict=True):
            possible = {outcome[1] for outcome in table[int(cell)][int(action)]}
            insist(int(there) in possible, f"{task} went from {cell} by {action} to {there}")
        before, over = after, terminated | truncated

    def run() -> None:
        for row in rows:
            env.step(row)

    boards = "the same map and actions, dice of its own" if table is not None else "its own built-in boards"
    return Work(run, actions.size, f"make_gymnasium({task!r}), one thread, {boards}")


def gymnasium_lakes(actions: Any) -> Work:
    """Gymnasium's own FrozenLake, one by one in a SyncVectorEnv."""
    make = [lambda: gym.make("FrozenLake-v1", map_name="4x4") for _ in range(actions.shape[1])]
    env = gym.vector.SyncVectorEnv(make)
    ours = gym.make_vec("tsr/FrozenLake-v0", num_envs=actions.shape[1], map_name="4x4", obs_type="discrete")
    insist(np.array_equal(env.reset(seed=0)[0], ours.reset(seed=0)[0]), "Gymnasium's lakes begin elsewhere")
    for row in actions[:CHECKED_STEPS]:
        same = map(np.array_equal, env.step(row)[:4], ours.step(row)[:4])
        insist(all(same), "Gymnasium's lakes lead elsewhere")

    def run() -> None:
        for row in actions[:4]:
            env.step(row)

    return Work(run, actions[:4].size, "SyncVectorEnv of gym.make, the same maps, actions and dice")


def seed_globals(seed: int) -> None:
    """Seed the global generators, from which gym-sokoban draws its rooms."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (gym-sokoban's own way)


def gym_sokoban(seed: int, dim: tuple[int, int], num_boxes: int) -> Any:
    """Return gym-sokoban's environment in the room of a seed, after the same moves in both."""
    require_peer("gym_sokoban")
    from gym_sokoban.envs.sokoban_env import SokobanEnv

    # The constructor draws another room.
    env = SokobanEnv(dim_room=dim, num_boxes=num_boxes, max_steps=10**9)
    seed_globals(seed)
    env.reset(render_mode="tiny_rgb_array")
    ours = gym.make(
        "tsr/Sokoban-v0",
        obs_type="array",
        generator="gym-sokoban",
        dim=dim,
        num_boxes=num_boxes,
        max_actions=None,
        disable_env_checker=True,
    )
    seen, _ = ours.reset(seed=seed)
    insist(np.array_equal(_codes(seen), env.room_state), "gym-sokoban's room is another")
    on_goal = int((seen == BOX_ON_GOAL).sum())
    env.boxes_on_target = on_goal
    rng = np.random.default_rng(seed)
    for action in rng.integers(4, size=CHECKED_STEPS).tolist():
        _, reward, done, _ = env.step(action + 1, observation_mode="tiny_rgb_array")
        seen, wanted, terminated, *_ = ours.step(action)
        insist(np.array_equal(_codes(seen), env.room_state), "gym-sokoban's board is another")
        insist(abs(reward - wanted) < 1e-9 and done == terminated, "gym-sokoban pays or ends otherwise")
        if terminated:
            break
    return env


def _codes(board: Any) -> Any:
    """Return a board in gym-sokoban's codes, in which the player hides the goal below."""
    return np.minimum(board, PLAYER)


def gym_sokoban_steps(dim: tuple[int, int], num_boxes: int, *, rendered: bool, num: int) -> Work:
    """Steps of gym-sokoban, as RAGEN takes them or without the picture."""
    env = gym_sokoban(1, dim, num_boxes)
    if not rendered:
        env.render = lambda *_, **__: None
    actions = (np.random.default_rng(0).integers(4, size=num) + 1).tolist()

    def run() -> None:
        for action in actions:
            env.step(action)

    return Work(
        run, num, "step() with its picture, as RAGEN calls it" if rendered else "step() with render patched out"
    )


def gym_sokoban_rooms(dim: tuple[int, int], num_boxes: int, seeds: range) -> Work:
    """Rooms of gym-sokoban for the same seeds as ours."""
    require_peer("gym_sokoban")
    from gym_sokoban.envs.room_utils import generate_room as original

    def draw(seed: int) -> Any:
        seed_globals(seed)
        return original(dim=dim, num_steps=int(1.7 * sum(dim)), num_boxes=num_boxes)[1]

    seen = gym.make("tsr/Sokoban-v0", obs_type="array", generator="gym-sokoban", dim=dim, num_boxes=num_boxes)
    board, _ = seen.reset(seed=seeds[0])
    insist(np.array_equal(_codes(board), draw(seeds[0])), "gym-sokoban draws another room")

    def run() -> None:
        for seed in seeds:
            draw(seed)

    return Work(run, len(seeds), "generate_room with the same seeds")


def sokoban_rooms(num: int) -> list[Any]:
    """Return the rooms that all batches are timed on: gym-sokoban's of the first seeds, 10x10 with 4 boxes."""
    return [generate_room(seed, generator="gym-sokoban", dim=(10, 10), num_boxes=4) for seed in range(num)]


def show(rows: list[Row]) -> None:
    """Print the table."""
    for line in rows:
        peers = ", ".join(
            f"{name} {value if isinstance(value, str) else f'{value:.4g}'}" for name, value in line.peers.items()
        )
        print(f"{line.what:<52}{line.ours:>10.4g} {line.unit:<11}{line.wanted:<24}{peers}")


def main() -> None:
    """Measure, and write results/grid_speed.json."""
    quick = "--quick" in sys.argv[1:]
    # Libraries that start threads then share one core with them, ours and the peers'.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with TemporaryDirectory() as folder:
        rows = [sokoban_rules(), sokoban_vector(Path(folder)), *sokoban_text(), *snapshots(), *rooms(quick)]
    rows += [*frozen_lake(), *analysis(quick)]
    about = {"what": "medians of processor time on one core", "peers": installed(PEERS)}
    write_result("grid_speed", {**about, "rows": [line._asdict() for line in rows]})
    show(rows)


if __name__ == "__main__":
    run_timed(main)
