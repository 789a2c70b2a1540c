"""The peers of `grid_speed.py`, each in the form that its authors recommend, and the checks that it plays our game.

A peer is asked for by a function that compares first and then returns what to time; where its package is not installed,
the function raises MissingPeer.
"""

import random
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.measure import Work, insist, require_peer
from tsr_gym_envs.frozen_lake.rules import MAPS, transition_table
from tsr_gym_envs.sokoban.discrete_env import BOX, BOX_ON_GOAL, GOAL, PLAYER, PLAYER_ON_GOAL, WALL
from tsr_gym_envs.sokoban.rooms import generate_room

CHECKED_STEPS = 100
# Jumanji's numbers of up, down, left and right; its documentation has them in another order.
_JUMANJI = np.array([0, 2, 3, 1], np.int32)


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


def lake_table() -> Any:
    """Return the transitions of the lake that all are timed on."""
    return transition_table(MAPS["4x4"])


def sokoban_rooms(num: int) -> list[Any]:
    """Return the rooms that all batches are timed on: gym-sokoban's of the first seeds, 10x10 with 4 boxes."""
    return [generate_room(seed, generator="gym-sokoban", dim=(10, 10), num_boxes=4) for seed in range(num)]
