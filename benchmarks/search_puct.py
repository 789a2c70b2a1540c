"""Simulations per second of PUCT on Sokoban: over objects, in arrays, and mctx's, with the same values and priors."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from benchmarks.grid_speed import sokoban_rooms
from benchmarks.measure import MissingPeer, Work, alternate, insist, installed, require_peer
from tsr_gym import Candidate
from tsr_gym.agents.arrays import array_puct
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.strategies import puct
from tsr_gym.tree import Tree
from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym_envs.sokoban.discrete_env import BOX, BOX_ON_GOAL, FLOOR, GOAL, PLAYER
from tsr_gym_envs.sokoban.levels import TitledLevel, to_collection
from tsr_gym_envs.sokoban.rooms import generate_room

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "agents" / "golden" / "mctx_visits.json"

LIBRARIES = ("mctx", "jax", "jaxlib")
# The first action is a little likelier than the last, so that no choice of a checked search is a tie.
TILT = 0.01
STEP, ON_GOAL, DONE = -0.1, 1.0, 10.0


class Rooms(NamedTuple):
    """Positions of Sokoban in JAX; the batch is the first axis of all."""

    boards: Any
    players: Any
    taken: Any
    over: Any


def load() -> tuple[Any, Any, Any]:
    """Return jax, jax.numpy and mctx.

    Raises:
        MissingPeer: They are not installed.
    """
    require_peer("mctx")
    try:
        import jax
        import jax.numpy as jnp
        import mctx
    except ImportError as error:
        raise MissingPeer(f"mctx cannot be imported: {error}") from error
    return jax, jnp, mctx


def rooms_of(batch: Any) -> Rooms:
    """Return the positions of a batch whose observations are arrays, at the start of their episodes."""
    _, jnp, _ = load()
    boards = np.asarray(batch.observe()).reshape(batch.num_envs, -1)
    players = (boards >= PLAYER).argmax(1)
    zeros = jnp.zeros(len(boards), jnp.int32)
    return Rooms(jnp.asarray(boards, jnp.uint8), jnp.asarray(players, jnp.int32), zeros, jnp.asarray(batch.over))


def make_step(width: int, max_actions: int) -> Callable[[Rooms, Any], tuple[Rooms, Any]]:
    """Return the rules for many boards of a width: from rooms and actions to rooms and rewards."""
    _, jnp, _ = load()
    offsets = jnp.array((-width, width, -1, 1), jnp.int32)

    def step(rooms: Rooms, actions: Any) -> tuple[Rooms, Any]:
        rows = jnp.arange(len(actions))
        here, offset = rooms.players, offsets[actions]
        target = here + offset
        ahead = rooms.boards[rows, target]
        is_box = (ahead == BOX) | (ahead == BOX_ON_GOAL)
        # Where there is no box, the cell behind it does not matter, and it may lie outside.
        beyond = jnp.where(is_box, target + offset, target)
        behind = rooms.boards[rows, beyond]
        walks = (ahead == FLOOR) | (ahead == GOAL)
        pushes = is_box & ((behind == FLOOR) | (behind == GOAL))
        moves = (walks | pushes) & ~rooms.over
        pushes &= moves
        was_goal, onto_goal = (ahead == GOAL) | (ahead == BOX_ON_GOAL), behind == GOAL
        boards = rooms.boards.at[rows, here].add(jnp.where(moves, FLOOR - PLAYER, 0).astype(jnp.uint8))
        entered = jnp.where(was_goal, PLAYER + 1, PLAYER).astype(jnp.uint8)
        boards = boards.at[rows, target].set(jnp.where(moves, entered, ahead))
        pushed = jnp.where(onto_goal, BOX_ON_GOAL, BOX).astype(jnp.uint8)
        boards = boards.at[rows, beyond].set(jnp.where(pushes, pushed, boards[rows, beyond]))
        gained = jnp.where(pushes, onto_goal.astype(jnp.int32) - was_goal.astype(jnp.int32), 0)
        solved = ~(boards == BOX).any(1)
        rewards = STEP + gained * ON_GOAL + jnp.where(solved & pushes, DONE, 0.0)
        taken = rooms.taken + ~rooms.over
        after = Rooms(boards, jnp.where(moves, target, here), taken, rooms.over | solved | (taken >= max_actions))
        return after, jnp.where(rooms.over, 0.0, rewards)

    return step


def check_rules(batch: Any, step: Any, steps: int = 100) -> None:
    """Stop where random play in JAX goes otherwise than in a batch of ours."""
    jax, jnp, _ = load()
    ours, rooms, jitted = batch.take(np.arange(batch.num_envs)), rooms_of(batch), jax.jit(step)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        actions = rng.integers(4, size=batch.num_envs)
        resting = ours.over
        rooms, rewards = jitted(rooms, jnp.asarray(actions))
        wanted, terminated, truncated = ours.advance(actions)
        boards = np.asarray(ours.observe()).reshape(batch.num_envs, -1)
        insist(np.array_equal(boards, rooms.boards), "the boards in JAX are others")
        insist(np.allclose(wanted, rewards, atol=1e-5), "the rewards in JAX are others")
        insist(np.array_equal(rooms.over, terminated | truncated | resting), "the ends in JAX are others")


def make_search(rooms: Rooms, step: Any, simulations: int, *, tilt: float = 0.0) -> Callable[[], Any]:
    """Return a compiled search of mctx from some rooms; each call runs it and waits for what it returns."""
    jax, jnp, mctx = load()

    def evaluate(current: Rooms) -> tuple[Any, Any]:
        values = -(current.boards == BOX).sum(1).astype(float)
        return jnp.broadcast_to(-tilt * jnp.arange(4.0), (len(values), 4)), values

    def recurrent(params: Any, key: Any, actions: Any, before: Rooms) -> Any:
        after, rewards = step(before, actions)
        logits, values = evaluate(after)
        discounts = jnp.where(after.over, 0.0, 1.0).astype(values.dtype)
        rewards = rewards.astype(values.dtype)
        output = mctx.RecurrentFnOutput(reward=rewards, discount=discounts, prior_logits=logits, value=values)
        return output, after

    def search(key: Any, start: Rooms) -> Any:
        logits, values = evaluate(start)
        return mctx.muzero_policy(
            params=(),
            rng_key=key,
            root=mctx.RootFnOutput(prior_logits=logits, value=values, embedding=start),
            recurrent_fn=recurrent,
            num_simulations=simulations,
            dirichlet_fraction=0.0,
        )

    compiled, key = jax.jit(search), jax.random.PRNGKey(0)
    return lambda: jax.block_until_ready(compiled(key, rooms))


def exact_visits(batch: Any, step: Any, simulations: int) -> tuple[Any, Any]:
    """Return mctx's visits of the roots' actions and the roots' values, in double precision and without ties."""
    jax, _, _ = load()
    with jax.enable_x64(True):
        summary = make_search(rooms_of(batch), step, simulations, tilt=TILT)().search_tree.summary()
        return np.asarray(summary.visit_counts), np.asarray(summary.value)


def compile_seconds(search: Callable[[], Any]) -> float:
    """Return the seconds of a search's first call, nearly all of them for compiling."""
    started = perf_counter()
    search()
    return perf_counter() - started


def golden_case(level: str, simulations: int, max_actions: int) -> dict[str, Any]:
    """Return mctx's visit counts in a room, for the tests of our own search."""
    batch: Any = gym.make_vec("tsr/Sokoban-v0", num_envs=1, level=level, max_actions=max_actions)
    batch.reset(seed=0)
    visits, values = exact_visits(batch, make_step(batch.observe().shape[2], max_actions), simulations)
    expected = {"visits": visits[0].astype(int).tolist(), "value": float(values[0])}
    return {"level": level, "max_actions": max_actions, "simulations": simulations, **expected}


def write_golden() -> None:
    """Write the visit counts of mctx that our own search is tested against."""
    rooms = [generate_room(seed) for seed in range(3)] + [generate_room(0, dim=(8, 8), num_boxes=3)]
    cases = [golden_case(room.to_xsb(), simulations, 30) for room in rooms for simulations in (16, 200)]
    cases.append(golden_case("######\n#@ $.#\n######", 300, 5))
    GOLDEN.write_text(json.dumps({"versions": installed(LIBRARIES), "tilt": TILT, "cases": cases}, indent=1) + "\n")


BATCHES = (1, 16, 256)
MAX_ACTIONS = 120
# The array search has no ties to break here that mctx could break otherwise, and both sum in double precision.
LEAST_EQUAL = 1.0


def priors(tilt: float = 0.0) -> Any:
    """Return the priors of the actions, the first a little likelier than the last."""
    weights = np.exp(-tilt * np.arange(4.0))
    return weights / weights.sum()


def evaluate(batch: Any, logits: Any = priors()) -> tuple[Any, Any]:  # noqa: B008
    """Return priors, and minus the number of boxes that are off goals."""
    return logits, -(batch.observe() == BOX).sum((1, 2)).astype(float)


def next_action(requests: Any) -> list[list[Candidate]]:
    """Try the four actions of a node one after the other."""
    return [
        [Candidate((len(tree.children(wish.node)) + number) % 4) for number in range(wish.samples)]
        for tree, wish in requests
    ]


def value_of(tree: Tree, index: int) -> float:
    """Return the value of a node by `evaluate`, and the rewards on the way to it."""
    node = tree.nodes[index]
    return tree.total(index, "reward") - (0.0 if node.done else float((node.observation == BOX).sum()))


def objects(settings: dict[str, Any], tasks: int, simulations: int) -> Work:
    """Return the search over objects: every node takes all four actions, one simulation each."""
    envs = [TreeSearchWrapper(gym.make("tsr/Sokoban-v0", action_type="discrete", **settings)) for _ in range(tasks)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    numbers: dict[str, Any] = {"simulations": simulations, "moves": 1, "k": 4, "alpha": 0.0, "prior": "uniform"}
    strategy = partial(puct, value=value_of, **numbers)

    def run() -> Any:
        return search(envs, next_action, strategy, seeds=range(tasks))

    return Work(run, tasks * simulations, "search() with strategies.puct, k=4, alpha=0, gym.make's wrappers")


def mctx_work(envs: Any, simulations: int) -> tuple[Work, dict[str, Any]]:
    """Return mctx's search and what was compared before.

    Raises:
        MissingPeer: mctx is not installed.
    """
    load()
    step = make_step(envs.observe().shape[2], MAX_ACTIONS)
    check_rules(envs, step)
    visits, values = exact_visits(envs, step, simulations)
    seeds = range(envs.num_envs)
    ours = array_puct(envs, simulations=simulations, seeds=seeds, evaluate=partial(evaluate, logits=priors(TILT)))
    equal = float((visits == ours.visits).all(1).mean())
    insist(equal >= LEAST_EQUAL, f"the visits of mctx and of array_puct are equal in {equal:.0%} of the tasks only")
    run = make_search(rooms_of(envs), step, simulations)
    seconds = compile_seconds(run)
    about = {
        "tasks_with_equal_visits": equal,
        "largest_difference_of_root_values": float(np.abs(values - ours.values).max()),
        "compile_seconds": seconds,
    }
    how = "jit(muzero_policy), no noise at the root, float32, compiled before"
    return Work(run, envs.num_envs * simulations, how), about


def measure(settings: dict[str, Any], tasks: int, simulations: int, rounds: int) -> dict[str, Any]:
    """Return simulations per second of all for one number of roots."""
    envs: Any = gym.make_vec("tsr/Sokoban-v0", num_envs=tasks, **settings)
    envs.reset(seed=0)
    in_arrays = partial(array_puct, envs, simulations=simulations, seeds=np.arange(tasks), evaluate=evaluate)
    works = {
        "objects": objects(settings, tasks, simulations),
        "arrays": Work(in_arrays, tasks * simulations, "array_puct"),
    }
    about: dict[str, Any] = {}
    try:
        works["mctx"], about = mctx_work(envs, simulations)
    except MissingPeer as error:
        about = {"mctx": f"not run: {error}"}
    rates = alternate(works, rounds)
    medians = {name: rate["median"] for name, rate in rates.items()}
    ratios = {f"{name}_to_mctx": medians[name] / medians["mctx"] for name in ("objects", "arrays") if "mctx" in medians}
    return {"simulations_per_second": rates, **ratios, **about}


def puct_rows(quick: bool) -> dict[str, Any]:
    """Return a row for each number of roots, on rooms of gym-sokoban's generator."""
    simulations, rounds, num_rooms = (32, 3, 4) if quick else (128, 7, 64)
    with TemporaryDirectory() as folder:
        levels = Path(folder) / "levels.xsb"
        titled = [TitledLevel("", room) for room in sokoban_rooms(num_rooms)]
        levels.write_text(to_collection(titled), encoding="utf-8")
        settings = {"levels": str(levels), "max_actions": MAX_ACTIONS}
        rows: dict[str, Any] = {
            f"{tasks} roots": measure(settings, tasks, simulations, rounds) for tasks in BATCHES[: 2 if quick else 3]
        }
    about = {"simulations": simulations, "rooms": "10x10 with 4 boxes", "value": "minus the boxes off goals"}
    try:
        load()
        about |= installed(LIBRARIES)
    except MissingPeer as error:
        about["mctx"] = f"not run: {error}"
    return about | rows


if __name__ == "__main__":
    write_golden()
