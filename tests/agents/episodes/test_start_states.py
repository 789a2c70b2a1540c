"""Start states: harvested from trees, kept in a bank, and chosen for groups."""

import json
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.agents.worlds import WALKER, lake, letters, rooms
from tests.conftest import run_python
from tests.tsr_gym.testing.worlds import Board
from tsr_gym import Candidate, ConfigError, InvalidTree, Node, SnapshotError, Tree, TsrGymError
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.start_states import (
    Begun,
    Outcomes,
    Starts,
    StartStateBank,
    States,
    choose_starts,
    harvest_start_states,
    outcomes,
)
from tsr_gym.agents.episodes.trajectory import Group, Trajectory
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import naive
from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym_envs.sokoban.score import random_success

PAYS = {"a": 0.0, "b": 0.0, "x": 1.0}


def words(*turns, most=3, dead=()):
    """Return a tree that holds some words, node by node: parent's index and letters. A word that ends in x succeeds."""
    env = letters(PAYS, ends="x", turns=most, dead=dead)
    for parent, said in turns:
        env.expand(parent, [Candidate(letter) for letter in said])
    return env.tree


def small_tree():
    # 0 "", 1 a, 2 b, 3 ax!, 4 ab, 5 bb, 6 bb, 7 abx!, 8 aba, 9 bba, 10 bbb, 11 bba
    return words((0, "ab"), (1, "xb"), (2, "bb"), (4, "xa"), (5, "ab"), (6, "a"))


def rates(tree, **settings):
    return {state.observation: (state.tries, state.successes) for state in harvest_start_states(tree, **settings)}


def test_outcomes_are_those_below_and_states_of_uncertain_success_are_harvested():
    assert outcomes(small_tree()) == Outcomes(6, 6, 2)
    assert outcomes(small_tree().at(1)) == Outcomes(3, 3, 2)
    # The path to ab has not ended, and is no try.
    assert outcomes(words((0, "ab"), (1, "xb"), (2, "bb"))) == Outcomes(4, 1, 1)
    assert rates(small_tree()) == {"": (6, 2), "a": (3, 2), "ab": (2, 1)}
    assert [rates(small_tree(), threshold=most).keys() for most in (0.6, 0.5)] == [{"", "ab"}, {""}]
    assert [rates(small_tree(), min_tries=least).keys() for least in (3, 7)] == [{"", "a"}, set()]


def test_a_moment_says_where_it_is_from():
    tree = small_tree()
    _, start_state, deep = harvest_start_states(tree)
    assert (start_state.depth, deep.depth, start_state.seed) == (1, 2, tree.seed)
    assert start_state.snapshot == tree.nodes[1].snapshot
    assert start_state.success_rate == 2 / 3
    assert (start_state.visits, start_state.env) == (3, None)
    assert "'x'" in start_state.rules
    assert len({start_state.key for start_state in harvest_start_states(tree)}) == 3


def test_nodes_in_the_same_state_are_one_start_state():
    # bb grew twice, and succeeds from one of the two.
    tree = words((0, "ab"), (2, "bb"), (3, "x"), (4, "aa"))
    assert [tree.nodes[node].observation for node in (3, 4)] == ["bb", "bb"]
    assert (rates(tree)["bb"], len(harvest_start_states(tree))) == ((3, 1), 3)


def test_a_path_that_comes_back_counts_once():
    env = rooms(3, max_turns=4, max_actions_per_turn=1)
    one, other = (Candidate(f"<think></think><answer>{word}</answer>") for word in ("junk", "also junk"))
    here = 0
    for _ in range(4):
        # Words that mean nothing leave everything as it is, but for the turn.
        here, _ = env.expand(here, [one, other])
    tree = env.tree
    anyhow = partial(harvest_start_states, tree, min_tries=1, solved=lambda node: node.done and node.candidate == one)
    assert [(state.visits, state.tries, state.successes) for state in anyhow(turns=False)] == [(5, 2, 1)]
    assert [start_state.tries for start_state in anyhow(turns=True)] == [2, 2, 2, 2]


def test_a_dead_end_is_a_failure_and_a_leaf_that_goes_on_is_not_yet():
    snap = small_tree().nodes[0].snapshot
    tree = Tree()
    tree.add(Node(None, 0, Candidate(""), "start", 0.0, 0.0, False, False, {}, snap))
    for terminated, info in ((True, {"success": True}), (False, {"dead_end": "stuck"}), (False, {}), (True, {})):
        tree.add(Node(0, 1, Candidate(""), "there", 0.0, 0.0, terminated, False, info, snap))
    assert outcomes(tree) == Outcomes(4, 3, 1)
    (start_state,) = harvest_start_states(tree)
    assert (start_state.visits, start_state.tries, start_state.successes) == (4, 3, 1)
    # Without a state's key only the snapshot distinguishes start states.
    assert start_state.key != harvest_start_states(small_tree())[0].key


@pytest.mark.parametrize("settings", [{"threshold": 0.0}, {"threshold": 1.5}, {"min_tries": 0}])
def test_numbers_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=r"wanted (threshold|min_tries) "):
        harvest_start_states(small_tree(), **settings)


def test_trees_without_snapshots_and_banks_that_cannot_be_written_are_refused(tmp_path):
    small_tree().save(tmp_path / "tree.jsonl", snapshots=False)
    with pytest.raises(TsrGymError, match="without snapshots"):
        harvest_start_states(Tree.load(tmp_path / "tree.jsonl"))
    path = tmp_path / "bank.jsonl"
    bank = bank_of(small_tree())
    bank.save(path)
    start_state = next(iter(bank))
    bank.add([replace(start_state, key="odd", observation=object())])
    with pytest.raises(SnapshotError, match="pickle-free"):
        bank.save(path)
    assert len(StartStateBank.load(path)) == 3


def bank_of(*trees, **settings):
    bank = StartStateBank()
    for tree in trees:
        bank.add(harvest_start_states(tree, **settings))
    return bank


def test_outcomes_of_a_start_state_add_up_and_an_empty_bank_draws_nothing():
    bank = bank_of(small_tree())
    assert bank.add(harvest_start_states(words((0, "ab"), (1, "xb"), (4, "xab")))) == 0
    tried = {start_state.observation: (start_state.tries, start_state.successes) for start_state in bank}
    assert tried == {"": (10, 4), "a": (7, 4), "ab": (5, 2)}
    assert len(bank) == 3
    bank = bank_of(small_tree())
    start_state = next(iter(bank))
    assert bank.update(start_state, Outcomes(5, 4, 4)).success_rate == 6 / 10
    assert next(iter(bank)).tries == 10
    with pytest.raises(KeyError):
        StartStateBank().update(start_state, Outcomes(1, 1, 0))
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="the bank is empty"):
        StartStateBank().sample(rng)
    with pytest.raises(ValueError, match="'easy'"):
        bank_of(small_tree()).sample(rng, prefer="easy")


@pytest.mark.parametrize("prefer", ["uncertain", "hard", "uniform"])
def test_moments_are_drawn_by_how_hard_they_are(prefer):
    bank = bank_of(small_tree())
    # (successes + 1) / (tries + 2): 3/8, 3/5 and 2/4.
    chances = np.array([3 / 8, 3 / 5, 2 / 4])
    weights = {"uncertain": chances * (1 - chances), "hard": 1 - chances, "uniform": np.ones(3)}[prefer]
    weights /= weights.sum()
    drawn = Counter(state.observation for state in bank.sample(np.random.default_rng(1), 6000, prefer=prefer))
    for name, chance in zip(("", "a", "ab"), weights, strict=True):
        assert abs(drawn[name] - 6000 * chance) < 4 * (6000 * chance * (1 - chance)) ** 0.5


def test_a_bank_comes_back_from_the_disk_as_it_was(tmp_path):
    bank = bank_of(small_tree())
    bank.update(next(iter(bank)), Outcomes(3, 2, 1))
    bank.save(tmp_path / "bank.jsonl")
    again = StartStateBank.load(tmp_path / "bank.jsonl")
    assert list(again) == list(bank)
    draws = [one.sample(np.random.default_rng(4), 9) for one in (bank, again)]
    assert draws[0] == draws[1]
    StartStateBank().save(tmp_path / "empty.jsonl")
    assert len(StartStateBank.load(tmp_path / "empty.jsonl")) == 0


def test_observations_that_are_arrays_come_back_as_arrays(tmp_path):
    env = TreeSearchWrapper(Board())
    env.reset(seed=1)
    here = 0
    for _ in range(8):
        here, _ = env.expand(here, [0, 1])
    bank = bank_of(env.tree, solved=lambda node: node.done and node.candidate.text == 0)
    bank.save(tmp_path / "bank.jsonl")
    (first, *_), (again, *_) = bank, StartStateBank.load(tmp_path / "bank.jsonl")
    np.testing.assert_array_equal(first.observation, again.observation)
    assert again.observation.dtype == np.uint8


WRONG = ("Infinity", "NaN", "true", '"3"', "null", "[]")


def damaged(lines, how):
    header, first, *rest = lines
    fields = json.loads(first)
    if how == "snapshot":
        fields["snapshot"] = fields["snapshot"][:-8] + "AAAAAAA="
    if how == "numbers":
        fields["successes"] = 99
    if how == "fields":
        del fields["key"]
    if "=" in how:
        fields |= json.loads("{" + how.replace("=", ":") + "}")
    return {
        "empty": [],
        "format": ['{"format": "tsr-gym tree", "version": 1}', first, *rest],
        "version": [header.replace('"version": 1', '"version": 9'), first, *rest],
        "cut short": [header, first],
        "cut line": [header, first, rest[0][:50], *rest[1:]],
        "twice": [header, first, first, *rest[1:]],
        "no JSON": [header, "start_states", *rest],
        "a number": [header, "7", *rest],
        "deep": [header, "[" * 100_000, *rest],
        "deep header": ["[" * 100_000, first, *rest],
    }.get(how, [header, json.dumps(fields), *rest])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("empty", "wanted 'tsr-gym start states' of version 1, got"),
        ("format", "got .'tsr-gym tree', 1."),
        ("version", "got .'tsr-gym start states', 9."),
        ("cut short", "wanted 3 different start states, got 1 in 1 lines"),
        ("cut line", "line 3: not a start state"),
        ("twice", "wanted 3 different start states, got 2 in 3 lines"),
        ("no JSON", "line 2: not a start state"),
        ("a number", "line 2: not a start state"),
        ("deep", "line 2: not a start state"),
        ("deep header", "line 1: not a start state"),
        ("snapshot", "line 2: not a start state .*damaged"),
        ("numbers", "line 2: not a start state .wanted visits >= tries"),
        ("fields", "line 2: not a start state"),
        *((f'"{name}"={value}', "line 2: not a start state") for name in ("visits", "seed") for value in WRONG),
        *((f'"{name}"=7', f"line 2: not a start state .wanted {name} as str") for name in ("key", "env", "rules")),
    ],
)
def test_a_damaged_file_is_refused_and_the_line_named(tmp_path, how, message):
    path = tmp_path / "bank.jsonl"
    bank_of(small_tree()).save(path)
    path.write_text("\n".join(damaged(path.read_text().splitlines(), how)))
    with pytest.raises(InvalidTree, match=message):
        StartStateBank.load(path)


STEPS = 8
WANDERER = RandomPolicy(("Up", "Down", "Left", "Right"))


def tiny_room(seed):
    return rooms(seed, max_turns=STEPS, max_actions=STEPS, max_actions_per_turn=1)


def harvested(seeds):
    """Search some rooms by random play, and harvest where success is not certain."""
    trees = search([tiny_room(seed) for seed in seeds], WANDERER, partial(naive, rollouts=80), seeds=seeds)
    return bank_of(*trees, min_tries=15)


def chance(start_state):
    """Return the exact chance that random play solves a start state's room within the actions that are left there."""
    episode = start_state.snapshot.layers[-1].state.episode
    return random_success(episode.state, STEPS - episode.actions)


def played(start_state, seeds):
    """Play an episode from a start state for every seed, at random, and return the outcomes."""
    envs = [tiny_room(0) for _ in seeds]
    for env, seed in zip(envs, seeds, strict=True):
        observation, info = env.reset(seed=seed, options=start_state.start)
        assert observation == start_state.observation
        assert info["turns_left"] == STEPS - start_state.depth
    trees = search(envs, WANDERER, naive, seeds=seeds)
    return Outcomes(*np.sum([outcomes(tree) for tree in trees], axis=0).tolist())


def test_episodes_begin_at_moments_and_succeed_as_often_as_those_say(tmp_path):
    harvested((0, 4, 5)).save(tmp_path / "bank.jsonl")
    bank = StartStateBank.load(tmp_path / "bank.jsonl")
    assert len(bank) > 15
    for start_state in bank:
        assert 0 < start_state.success_rate < 1
        sigma = (chance(start_state) * (1 - chance(start_state)) / start_state.tries) ** 0.5
        assert abs(start_state.success_rate - chance(start_state)) < 5 * sigma + 1e-9
    rng = np.random.default_rng(5)
    found = {}
    for name, low, high in (("hard", 0.0, 0.15), ("even", 0.35, 0.65), ("easy", 0.75, 1.0)):
        among = [start_state for start_state in bank if low <= start_state.success_rate <= high]
        start_state = among[rng.integers(len(among))]
        found[name] = played(start_state, range(100, 150))
        expected = 50 * chance(start_state)
        assert found[name].tries == 50
        assert abs(found[name].successes - expected) < 4 * (expected * (1 - chance(start_state))) ** 0.5
        assert bank.update(start_state, found[name]).tries == start_state.tries + 50
    assert found["hard"].successes < found["even"].successes < found["easy"].successes


def test_a_moment_on_the_ice_has_dice_of_its_own_in_every_episode():
    trees = search([lake(seed) for seed in range(8)], WALKER, partial(naive, rollouts=30), seeds=range(8))
    start_state = max(bank_of(*trees), key=lambda start_state: start_state.depth)
    assert 0 < start_state.success_rate < 1
    env = lake(0)
    seen = set()
    for seed in range(30):
        assert env.reset(seed=seed, options=start_state.start)[0] == start_state.observation
        seen.add(env.step("<think></think><answer>Up</answer>")[0])
    assert len(seen) >= 2


def from_file(path):
    """Play a bank's start states, and return the observations; called in another process, too."""
    env = tiny_room(0)
    return [
        [env.reset(seed=4, options=start_state.start)[0], env.step("<think></think><answer>Up</answer>")[0]]
        for start_state in StartStateBank.load(path)
    ]


def test_a_bank_is_read_in_another_process(tmp_path):
    harvested(range(2)).save(tmp_path / "bank.jsonl")
    code = "import sys; sys.path.insert(0, '.'); from tests.agents.episodes.test_start_states import from_file; "
    out = run_python(code + f"print(from_file({str(tmp_path / 'bank.jsonl')!r}))")
    assert out.strip() == repr(from_file(tmp_path / "bank.jsonl"))


class Deepest:
    """Starts of a user's own: the last states of an update's trees."""

    def __init__(self, *, most=3):
        self.bank = StartStateBank()
        self.most = most

    def keep(self, trees, begun):
        self.bank.keep_last(self.most)

    def draw(self, rng):
        return next(iter(self.bank))

    def numbers(self):
        return {}

    def recall(self, numbers):
        assert not numbers


def test_starts_are_chosen_by_name_with_their_numbers():
    assert isinstance(choose_starts("states")(), States)
    own = choose_starts("tests.agents.episodes.test_start_states:Deepest(most=5)")()
    assert isinstance(own, Starts)
    assert own.most == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("state", "did you mean states"),
        ("Begun", "no kind of start state"),
        ("collections:Counter", "makes a Counter"),
    ],
)
def test_starts_that_do_not_exist_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        choose_starts(text)()


def test_a_group_that_fails_lowers_the_rate_of_the_state_where_it_began():
    starts = States()
    starts.keep([small_tree()], ())
    first = next(iter(starts.bank))
    starts.keep([], [Begun(first, tries=4, successes=0)])
    assert next(iter(starts.bank)).tries == first.tries + 4
    # The tree of a group has the state where it began, too: it counts once.
    again = next(iter(starts.bank))
    starts.keep([small_tree()], [Begun(again, tries=2, successes=1)])
    kept = next(iter(starts.bank))
    assert (kept.tries, kept.successes) == (again.tries + 2, first.successes + 1)


def test_plain_play_counts_where_there_is_some_and_search_otherwise():
    start_state = harvest_start_states(small_tree())[0]

    def episode(success, selected_by, finished=True):
        return Trajectory((), success, 0.0, selected_by, finished=finished)

    searched = [episode(True, "beam"), episode(True, "beam"), episode(False, "beam", finished=False)]
    plain = [episode(False, "naive"), episode(True, "naive"), episode(False, "naive")]
    assert Begun.of(start_state, Group(0, (*searched, *plain))) == Begun(start_state, 3, 1)
    assert Begun.of(start_state, Group(0, tuple(searched))) == Begun(start_state, 2, 2)


def test_what_is_drawn_derives_from_the_generator_alone():
    tree = words((0, "ab"), (1, "ab"), (3, "bx"), (4, "x"), (2, "ab"), dead=("bb",))
    starts = choose_starts("states")()
    starts.keep([tree], [])
    assert len(starts.bank) > 0
    drawn = [[starts.draw(np.random.default_rng(seed)).key for seed in range(9)] for _ in range(2)]
    assert drawn[0] == drawn[1]
