"""Plain and searched play of episodes, its means, and the held-out instances with their bars on disk."""

import json
from collections import defaultdict
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import product
from math import sqrt

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym.agents.episodes.play as playing
from tests.agents.learning.test_batch import turn
from tests.agents.worlds import WALKER, lake
from tests.conftest import deep
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.intervals import wilson
from tsr_gym.agents.episodes.play import (
    FILE,
    HeldOut,
    PlayedEpisodes,
    bars,
    evaluate,
    examine,
    held_out,
    play,
    summarise,
    summarise_examined,
)
from tsr_gym.agents.episodes.play import held_out as seeds_of
from tsr_gym.agents.episodes.trajectory import Trajectory
from tsr_gym.agents.policies.random_policy import RandomPolicy, legal_player
from tsr_gym.agents.strategies import beam, naive
from tsr_gym.stack import snapshot
from tsr_gym.tree import Budget, Candidate
from tsr_gym.wrappers.grow import play_out
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv
from tsr_gym_envs.frozen_lake.values import policy_value, success_ceiling

LAKE = {"desc": ["SFF", "FHF", "FFG"], "max_turns": 4, "max_actions_per_turn": 1, "max_actions": 4}


def always(name):
    """Return a policy that takes one action everywhere."""
    answer = Candidate(f"<think></think><answer>{name}</answer>")
    return lambda requests: [[answer] * wish.samples for _, wish in requests]


def test_success_has_an_interval_over_instances():
    found = PlayedEpisodes(((True,), (False,), (True,), (True,)), Budget())
    assert (found.success, found.num_episodes) == ((0.75, *wilson(3, 4)), 4)
    found = PlayedEpisodes(((True, True), (False, False)), Budget())
    # Two instances whose episodes share their outcome are (2 * 2 + 2) / (2 * .5 + 1) = 3 times less than four episodes.
    assert found.success == pytest.approx((0.5, *wilson(2 / 3, 4 / 3)))
    # No success in four episodes of two instances is no success of two.
    assert PlayedEpisodes(((False,) * 2,) * 2, Budget()).success == (0.0, *wilson(0, 2))


def test_a_gain_is_worked_out_instance_by_instance():
    mine = PlayedEpisodes(((True, True), (True, False), (False, False)), Budget())
    other = PlayedEpisodes(((False, False), (True, False), (False, False)), Budget())
    mean, low, high = mine.gain_over(other)
    assert (mean, low, high) == (pytest.approx(1 / 3), 0.0, 1.0)
    assert mine.gain_over(mine) == (0.0, 0.0, 0.0)


def test_the_policy_alone_wins_as_often_as_its_value_says():
    pool = EnvPool("frozen_lake", LAKE)
    state, ice = pool.set([0])[0].unwrapped.state, pool.base.settings.ice
    exact = policy_value(state, lambda *_: {"Right": 1.0}, ice=ice, limits=pool.base.limits)
    found = play(pool, always("Right"), None, tasks=range(200), seeds=(0, 1, 2), batch=50)
    # 600 episodes: four standard deviations are at most 0.082.
    assert found.success.mean == pytest.approx(exact, abs=0.082)
    assert found.num_episodes == 600


def test_a_search_without_a_choice_plays_as_the_policy_alone():
    pool = EnvPool("frozen_lake", LAKE)
    alone = play(pool, legal_player(pool.base), None, tasks=range(30), seeds=(0,))
    searched = play(pool, legal_player(pool.base), partial(beam, width=1, branching=1), tasks=range(30), seeds=(0,))
    assert searched.successes == alone.successes
    assert searched.spent.env_steps > alone.spent.env_steps


def test_episodes_do_not_depend_on_how_many_are_played_together():
    pool = EnvPool("frozen_lake", LAKE, score="FrozenLakeScore")
    strategy, policy = partial(beam, width=2, branching=3), legal_player(pool.base)
    seen = []
    whole = play(pool, policy, strategy, tasks=range(5), seeds=(0, 1))
    assert play(pool, policy, strategy, tasks=range(5), seeds=(0, 1), batch=3, watch=seen.append) == whole
    assert seen == [3, 6, 9, 10]
    assert [len(row) for row in whole.successes] == [2] * 5
    # One instance by itself, and another seed.
    assert play(pool, policy, strategy, tasks=[3], seeds=(0, 1)).successes[0] == whole.successes[3]
    others = [play(pool, policy, strategy, tasks=range(12), seeds=(seed,)) for seed in (7, 8)]
    assert others[0] != others[1]


def test_everything_that_was_spent_is_counted():
    pool = EnvPool("sokoban", {"level": "######\n#@ $.#\n######", "max_turns": 5, "max_actions_per_turn": 1})
    right = always("Right")
    alone = play(pool, right, None, tasks=[0, 1], seeds=(0,))
    # Two turns each, and as many imagined ones.
    assert (alone.spent.env_steps, alone.successes) == (8, ((True,), (True,)))
    # Of two equal candidates one step is taken; the second search looks one turn less far.
    searched = play(pool, right, partial(naive, rollouts=1), tasks=[0], seeds=(0,))
    assert searched.spent.env_steps == 2 + 1 + 2


def test_a_summary_is_the_means_of_the_episodes():
    won = Trajectory((turn([1], [2, 3], 0.5, 0, 0), turn([1], [2], 1.5, 0)), True, 9.0, "naive")
    bad = turn([1], [2, 3, 4], -0.5, 0, 0, 0)
    lost = Trajectory((type(bad)(bad.prompt_ids, bad.token_ids, bad.logprobs, -0.5, False, 0),), False, 9.0, "naive")
    found = summarise([won, lost])
    assert (found.success, found.total_reward, found.turns, found.response_length) == (0.5, 0.75, 1.5, 3.0)
    # Two of three turns had the form.
    assert found.valid == pytest.approx(2 / 3)
    assert (found.instances, found.interval) == (2, wilson(1, 2))
    assert summarise([]).success == 0.0


def test_instances_that_are_equal_up_to_symmetry_count_as_one_in_the_interval():
    won = Trajectory((turn([1], [2], 0.5, 0),), True, 9.0, "naive")
    lost = Trajectory((turn([1], [2], 0.5, 0),), False, 9.0, "naive")
    found = summarise([won, won, lost, lost], [b"a", b"a", b"b", None])
    assert (found.success, found.instances, found.distinct) == (0.5, 4, 3)
    assert (found.interval, found.won, found.twins) == (wilson(1.5, 3), "1100", ((1, 0),))
    assert summarise([won, lost, won], [b"a", b"b", b"a"]).twins == ((2, 0),)


def test_rooms_that_are_turned_or_mirrored_have_one_form_and_slippery_lakes_none():
    pool = EnvPool("sokoban", {"split": "test"})
    played = evaluate(pool, RandomPolicy(pool.base.actions, max_actions=5), tasks=held_out(256))
    # Generated rooms of the default size are few.
    assert played.instances == 256
    assert 100 < played.distinct < 200
    rows = ("######", "#@$ .#", "#    #", "######")
    forms = {
        base.form(base.state)
        for level in (rows, [row[::-1] for row in rows], rows[::-1])
        for base in [EnvPool("sokoban", {"level": "\n".join(level)}).set([1])[0].unwrapped]
    }
    assert len(forms) == 1
    lake = EnvPool("frozen_lake", {}).set([1])[0].unwrapped
    assert lake.form(lake.state) is None


def test_held_out_instances_are_the_first_ones_and_each_is_played_once_and_by_itself():
    assert (held_out(5), len(set(held_out(100)))) == (held_out(9)[:5], 100)
    pool = EnvPool("frozen_lake", {})
    tasks = held_out(40)
    whole = evaluate(pool, WALKER, tasks=tasks, seed=3)
    assert whole.instances == 40
    assert whole == evaluate(pool, WALKER, tasks=tasks, seed=3, batch=7)
    alone = [evaluate(pool, WALKER, tasks=[task], seed=3).success for task in tasks]
    assert whole.success == pytest.approx(sum(alone) / 40)
    assert evaluate(pool, WALKER, tasks=tasks, seed=4) != whole


def test_parts_that_others_played_are_together_what_one_played():
    pool, other = EnvPool("sokoban", {"split": "test"}), EnvPool("sokoban", {"split": "test"})
    policy = RandomPolicy(pool.base.actions, max_actions=5)
    tasks = held_out(12)
    whole = examine(pool, policy, tasks=tasks, seed=3)
    parts = [examine(one, policy, tasks=tasks[part], seed=3) for one, part in ((other, slice(5)), (pool, slice(5, 12)))]
    assert parts[0] + parts[1] == whole
    assert summarise_examined(parts[0] + parts[1]) == evaluate(other, policy, tasks=tasks, seed=3)
    assert [group.task for group in whole.groups] == tasks
    assert len({form for form in whole.forms if form is not None}) > 1


def test_bars_are_random_plays_success_and_the_mean_of_exact_optima_or_none():
    pool = EnvPool("frozen_lake", {"max_actions_per_turn": 1, "max_turns": 10})
    tasks = held_out(400)
    limits = bars(pool, tasks=tasks)
    found = evaluate(pool, RandomPolicy(pool.base.actions), tasks=tasks)
    assert found.interval[0] <= limits.random <= found.interval[1]
    assert limits.random < limits.optimal
    pool = EnvPool("frozen_lake", {})
    tasks = held_out(6)
    maps = [pool.set([task])[0].unwrapped.state.desc for task in tasks]
    exact = [success_ceiling(desc, max_turns=5, max_actions_per_turn=5) for desc in maps]
    assert bars(pool, tasks=tasks).optimal == pytest.approx(sum(exact) / 6)
    # Every default room of Sokoban can be solved within the limits.
    assert bars(EnvPool("sokoban", {}), tasks=tasks).optimal == 1.0
    found = bars(EnvPool("frozen_lake", {"max_actions": None}), tasks=held_out(2))
    assert (found.random, found.optimal) == (None, None)
    assert bars(EnvPool("sokoban", {}), tasks=[]).optimal is None


def test_with_a_search_the_played_episode_counts_and_its_dice_do_not_depend_on_the_instances_seed():
    pool = EnvPool("frozen_lake", {}, score="FrozenLakeScore")
    tasks = held_out(60)
    search = partial(beam, width=1, branching=8, depth=1)
    honest = evaluate(pool, WALKER, tasks=tasks, strategy=search)
    clairvoyant = evaluate(pool, WALKER, tasks=tasks, strategy=search, noise="same")
    plain = evaluate(pool, WALKER, tasks=tasks)
    assert plain.success < honest.success < bars(pool, tasks=tasks).optimal < clairvoyant.success
    few = [evaluate(pool, WALKER, tasks=tasks[:20], strategy=search, batch=batch) for batch in (64, 3)]
    assert few[0] == few[1]
    # Another seed, other dice on the same instances.
    assert evaluate(pool, WALKER, tasks=tasks, strategy=search, seed=1) != honest


def test_runs_that_were_evaluated_before_can_be_compared_with_new_ones():
    # Recorded when evaluation and calibration had separate code for play.
    pool, tasks = EnvPool("frozen_lake", {}, score="FrozenLakeScore"), held_out(30)
    plain = evaluate(pool, WALKER, tasks=tasks, seed=3)
    assert (plain.success, plain.turns) == (8 / 30, 3.3)
    searched = evaluate(pool, WALKER, tasks=tasks, seed=3, strategy=partial(beam, width=2, branching=3))
    assert (searched.success, searched.turns) == (11 / 30, 3.4)
    alone = play(pool, legal_player(pool.base), None, tasks=tasks[:4], seeds=(0, 2))
    assert alone.successes == ((True, False), (False, False), (False, False), (True, False))


# Gymnasium's order; one third each for the wanted direction and the two at right angles to it.
MOVES = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}
NAMES = tuple(MOVES)
CANDIDATES, TURNS, HOLE = 8, 5, 10.0
# The answers of WALKER: one action or two, each length and each action equally likely.
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

    The best imagined score of eight is v with probability F(v)^8 - F(below v)^8; the action there is distributed as
    for any candidate with that score; and the answer is then played on other dice.
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
    """Play an episode with a separate environment for every candidate; return whether it succeeded."""
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
    # A player that sees the episode's own dice beats every policy that does not, even with another look after every
    # action.
    _, seen = played(range(number), "same")
    assert np.mean(seen) - 2.6 * error_of(np.mean(seen), number) > ceiling(maps)


@pytest.mark.parametrize(("lakes", "references"), [(150, 1), deep(2000, 3)])
def test_played_best_of_8_succeeds_as_brute_force_and_below_the_optimum_unless_it_sees_the_dice(lakes, references):
    check_law(lakes, references)


def test_the_exact_success_of_a_player_is_below_the_presets_optimum_on_every_single_map():
    for seed in range(40):
        env = lake(seed)
        state = env.unwrapped.state
        _, optimum = env.unwrapped.success_bars(state)
        assert exact_success(state.desc, start(state.desc)) <= optimum + 1e-12


NUMBER = 6


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache folder for each test."""
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def drawn(monkeypatch):
    """The lakes that are drawn and the bars that are computed from now on."""
    calls = []
    initial, oracle = FrozenLakeEnv.initial, FrozenLakeEnv.success_bars
    monkeypatch.setattr(FrozenLakeEnv, "initial", lambda *args: (calls.append("drawn"), initial(*args))[1])
    monkeypatch.setattr(FrozenLakeEnv, "success_bars", lambda *args: (calls.append("solved"), oracle(*args))[1])
    return calls


def lakes(**settings):
    return EnvPool("frozen_lake", {"split": "test", **settings}, score="FrozenLakeScore")


def kept(cache):
    return sorted(cache.glob(f"held-out/*/{FILE}"))


@pytest.mark.parametrize("env", ["frozen_lake", "sokoban"])
def test_episodes_are_the_same_whether_instances_are_drawn_kept_or_read(env, cache):
    tasks = seeds_of(NUMBER)
    pools = [EnvPool(env, {"split": "test"}) for _ in range(3)]
    fresh = evaluate(pools[0], WALKER, tasks=tasks, seed=3), bars(pools[0], tasks=tasks)
    for pool in pools[1:]:
        exam = HeldOut(pool, NUMBER)
        limits = exam.bars
        assert (evaluate(pool, WALKER, tasks=exam.tasks, seed=3), limits) == fresh
        # Again, in environments that have played.
        assert evaluate(pool, WALKER, tasks=exam.tasks, seed=3) == fresh[0]
        assert pool.set(tasks, copies=2)[3].tree.nodes[0] == pools[0].set(tasks, copies=2)[3].tree.nodes[0]
    assert len(kept(cache)) == 1


def test_of_instances_with_equal_first_states_one_is_played():
    pool = EnvPool("sokoban", {"split": "test", "solution_length": [1, 2]})
    exam = HeldOut(pool, 60)
    played = examine(pool, WALKER, tasks=exam.distinct_tasks, seed=3)
    everything = examine(pool, WALKER, tasks=exam.tasks, seed=3)
    spread = exam.spread(played)
    assert spread.forms == everything.forms
    assert len(set(spread.forms)) < len(played.groups) < 60
    # Those that are played have the episode that they have among all instances; the others repeat it.
    shown = [group.trajectories[0].turns[0].state for group in everything.groups]
    by_state = {state: everything.groups[place].trajectories for place, state in [*enumerate(shown)][::-1]}
    assert [group.trajectories for group in spread.groups] == [by_state[state] for state in shown]
    assert [group.task for group in spread.groups] == exam.tasks
    summary = summarise_examined(spread)
    assert (summary.instances, summary.distinct) == (60, len(set(spread.forms)))


def test_instances_are_drawn_and_solved_once(drawn):
    exam = HeldOut(lakes(), NUMBER)
    assert drawn == []
    first = exam.bars
    assert (drawn.count("drawn"), drawn.count("solved")) == (NUMBER, NUMBER)
    evaluate(exam.pool, WALKER, tasks=exam.tasks)
    assert exam.bars is first
    assert (drawn.count("drawn"), drawn.count("solved")) == (NUMBER, NUMBER)
    # In another run one instance is drawn, to compare, and none is solved.
    drawn.clear()
    again = HeldOut(lakes(), NUMBER)
    assert again.bars == first
    evaluate(again.pool, WALKER, tasks=again.tasks)
    assert drawn == ["drawn"]
    # Another pool that plays them gets the same ones.
    assert again.starts == exam.starts
    assert again.starts == [snapshot(env) for env in lakes().set(again.tasks)]


@pytest.mark.parametrize("other", [{"settings": {"size": 5}}, {"number": NUMBER + 1}, {"version": "9.9"}])
def test_another_setting_number_or_version_has_instances_of_its_own(cache, monkeypatch, drawn, other):
    assert HeldOut(lakes(), NUMBER).bars.optimal is not None
    drawn.clear()
    monkeypatch.setattr(playing, "__version__", other.get("version", playing.__version__))
    number = other.get("number", NUMBER)
    assert HeldOut(lakes(**other.get("settings", {})), number).bars.optimal is not None
    assert (drawn.count("solved"), len(kept(cache))) == (number, 2)


def altered(data):
    digest, text = data.split(b"\n")
    return digest + b"\n" + text.replace(b'"random": 0', b'"random": 1', 1)


def signed(text):
    return f"{blake2b(text.encode(), digest_size=16).hexdigest()}\n{text}"


FOREIGN = signed("[1, 2]").encode()


def of_other_data(data):
    """As if the data of a world had been other data then."""
    bars = json.loads(data.split(b"\n")[1])
    return signed(json.dumps({**bars, "starts": bars["starts"][::-1]})).encode()


HARMS = [lambda data: data[: len(data) // 2], lambda data: FOREIGN, lambda data: b"", lambda data: b"\xff\xfe"]


@pytest.mark.parametrize("harm", [*HARMS, altered, of_other_data])
def test_what_is_damaged_is_computed_anew(cache, drawn, harm):
    wanted = HeldOut(lakes(), NUMBER).bars
    (file,) = kept(cache)
    sound = file.read_bytes()
    assert harm(sound) != sound
    file.write_bytes(harm(sound))
    drawn.clear()
    assert HeldOut(lakes(), NUMBER).bars == wanted
    assert drawn.count("solved") == NUMBER
    assert file.read_bytes() == sound


def test_without_an_oracle_or_a_cache_instances_are_kept_in_the_process_alone(cache, drawn):
    exam = HeldOut(lakes(max_actions=None), NUMBER)
    assert exam.bars.optimal is None
    drawn.clear()
    evaluate(exam.pool, WALKER, tasks=exam.tasks)
    assert (drawn, kept(cache)) == ([], [])
    cache.write_text("no folder")
    assert HeldOut(lakes(), NUMBER).bars == bars(lakes(), tasks=seeds_of(NUMBER))
