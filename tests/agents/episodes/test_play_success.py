"""The law of honest search: on slippery ice, per-turn best-of-8 plays as well as brute force says it should.

Three oracles that share nothing with the search: a brute force that builds and reseeds a new environment for every
candidate, the exact success of that player by dynamic programming, and the exact optimum of any player.
"""

from collections import defaultdict
from functools import lru_cache, partial
from itertools import product
from math import sqrt

import gymnasium as gym
import numpy as np
import pytest

from tests.agents.worlds import WALKER, lake
from tsr_gym.agents.strategies import beam
from tsr_gym.wrappers.grow import play_out
from tsr_gym_envs.frozen_lake.optimal import success_ceiling

# Gymnasium's order; one third each for the wanted direction and the two at right angles to it.
MOVES = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}
NAMES = tuple(MOVES)
CANDIDATES, TURNS, HOLE = 8, 5, 10.0
# What WALKER says: one action or two, each length and each action equally likely.
SAYINGS = [(said, 0.5 / 4 ** len(said)) for length in (1, 2) for said in product(NAMES, repeat=length)]
BEST_OF_8 = partial(beam, width=1, branching=CANDIDATES, depth=1)


def eq_14(desc, cell):
    """Return TSR's Eq. 14, written down again."""
    goal = next((r, c) for r, row in enumerate(desc) for c, letter in enumerate(row) if letter == "G")
    row, column = cell
    return -abs(row - goal[0]) - abs(column - goal[1]) - (HOLE if desc[row][column] == "H" else 0.0)


@lru_cache(maxsize=100_000)
def after(desc, cell, said):
    """Return the distribution of cells after a turn on slippery ice."""
    reached = {cell: 1.0}
    for name in said:
        later = defaultdict(float)
        for (row, column), chance in reached.items():
            if desc[row][column] in "GH":
                later[row, column] += chance
                continue
            number = NAMES.index(name)
            for direction in (number - 1, number, number + 1):
                down, right = MOVES[NAMES[direction % 4]]
                there = (min(max(row + down, 0), len(desc) - 1), min(max(column + right, 0), len(desc[0]) - 1))
                later[there] += chance / 3
        reached = later
    return reached


@lru_cache(maxsize=100_000)
def turn_of_best_of_8(desc, cell):
    """Return the distribution of the next cell for a player who takes the best of eight imagined turns.

    The best imagined score of eight is v with probability F(v)^8 - F(below v)^8; what was said there is distributed as
    for any candidate with that score; and what is said is then played on other dice.
    """
    imagined = defaultdict(float)
    for said, chance in SAYINGS:
        for there, share in after(desc, cell, said).items():
            imagined[eq_14(desc, there), said] += chance * share
    scores = sorted({score for score, _ in imagined})
    weight = {score: sum(share for (other, _), share in imagined.items() if other == score) for score in scores}
    played = defaultdict(float)
    below = 0.0
    for score in scores:
        best = (below + weight[score]) ** CANDIDATES - below**CANDIDATES
        below += weight[score]
        for said, _ in SAYINGS:
            if share := imagined.get((score, said)):
                for there, chance in after(desc, cell, said).items():
                    played[there] += best * share / weight[score] * chance
    return dict(played)


@lru_cache(maxsize=100_000)
def exact_success(desc, cell, turns=TURNS):
    """Return the exact success of that player."""
    letter = desc[cell[0]][cell[1]]
    if letter in "GH" or turns == 0:
        return float(letter == "G")
    return sum(
        chance * exact_success(desc, there, turns - 1) for there, chance in turn_of_best_of_8(desc, cell).items()
    )


def start(desc):
    return next((r, c) for r, row in enumerate(desc) for c, letter in enumerate(row) if letter == "S")


def brute_force(desc, rng):
    """Play an episode, with an environment of its own for every candidate; return whether it succeeded."""
    real = gym.make("tsr/FrozenLake-v0", desc=desc)
    real.reset(seed=int(rng.integers(2**31)))
    over = False
    while not over:
        best = (-np.inf, 0.0, None)
        for _ in range(CANDIDATES):
            said = " || ".join(rng.choice(NAMES, size=rng.integers(1, 3)))
            twin = gym.make("tsr/FrozenLake-v0", desc=desc)
            twin.reset(seed=int(rng.integers(2**31)))
            twin.unwrapped._episode = real.unwrapped.episode
            twin.unwrapped.np_random = np.random.default_rng(rng.integers(2**63))
            twin.step(said)
            best = max(best, (eq_14(desc, divmod(twin.unwrapped.state.position, 4)), rng.random(), said))
        *_, terminated, truncated, info = real.step(best[2])
        over = terminated or truncated
    return info["success"]


def played(seeds, noise):
    """Return the maps and who succeeded, played by the search."""
    envs = [lake(seed, noise=noise) for seed in seeds]
    maps = [env.unwrapped.state.desc for env in envs]
    play_out(envs, WALKER, BEST_OF_8, noise=noise)
    return maps, [bool(env.tree.nodes[env.tree.played[-1]].info["success"]) for env in envs]


def ceiling(maps, **limits):
    """Return the mean optimum; without limits, of players who look again after every single action."""
    return float(np.mean([success_ceiling(desc, **limits) for desc in maps]))


def error_of(share, number):
    return sqrt(share * (1 - share) / number)


def check_law(number, references):
    maps, won = played(range(number), "fresh")
    share = np.mean(won)
    rng = np.random.default_rng(20)
    reference = np.mean([brute_force(desc, rng) for desc in maps for _ in range(references)])
    spread = 1.96 * sqrt(error_of(share, number) ** 2 + error_of(reference, number * references) ** 2)
    assert abs(share - reference) <= spread
    # The exact share, and how far chance alone takes a sample of one episode per map from it.
    exact = [exact_success(desc, start(desc)) for desc in maps]
    error = sqrt(sum(chance * (1 - chance) for chance in exact)) / number
    assert abs(share - np.mean(exact)) <= 1.96 * error
    assert abs(reference - np.mean(exact)) <= 1.96 * error / sqrt(references) + 1e-12
    # Below the optimum of players who are held to two actions a turn, as WALKER is, and so below that of the preset.
    assert share <= ceiling(maps, max_turns=TURNS, max_actions_per_turn=2)
    # Whoever sees the episode's own dice plays better than anybody could, even with another look after every action.
    _, seen = played(range(number), "same")
    assert np.mean(seen) - 2.6 * error_of(np.mean(seen), number) > ceiling(maps)


def test_success_of_played_best_of_8_is_that_of_brute_force_and_below_the_optimum_unless_it_sees_the_dice():
    check_law(150, references=1)


@pytest.mark.deep
def test_the_same_with_two_thousand_lakes():
    check_law(2000, references=3)


def test_the_exact_success_of_a_player_is_below_the_presets_optimum_on_every_single_map():
    for seed in range(40):
        env = lake(seed)
        state = env.unwrapped.state
        _, optimum = env.unwrapped.success_bars(state)
        assert exact_success(state.desc, start(state.desc)) <= optimum + 1e-12


def test_searched_paths_look_better_than_what_is_played():
    """Why only played episodes count: the same search's best imagined paths claim far more than the optimum."""
    envs = [lake(seed) for seed in range(100)]
    maps = [env.unwrapped.state.desc for env in envs]
    claimed = []
    for env in envs:
        tree = env.search(WALKER, partial(beam, width=1, branching=CANDIDATES))
        claimed.append(
            bool(tree.nodes[tree.best([n for n in tree.leaves() if tree.nodes[n].done], 1)[0]].info["success"])
        )
    assert np.mean(claimed) - 2.6 * error_of(np.mean(claimed), 100) > ceiling(maps)
