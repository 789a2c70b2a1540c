"""Trips of people, stored as the trees of agents with the same actions; visitors by token."""

import json

import gymnasium as gym
import pytest

from tests.tsr_gym_envs.webshop.shops import BOLD, agents_tree, goal_of, hostile_catalogue, hostile_env
from tsr_gym import ConfigError
from tsr_gym.tree import Tree
from tsr_gym_envs.webshop.trips import Trips, TripTooLong, Visit, Visitors, end_of

# Of the page on which each action is taken: twice the shopper goes back and leaves what was seen since.
MOVES = (
    (0, "search[shirt]"), (1, "click[next >]"), (1, "search[soft shirt]"), (3, "click[b000000000]"),
    (4, "click[description]"), (4, "click[red]"), (6, f"click[{BOLD}]"), (7, "click[m]"), (8, "click[buy now]"),
)  # fmt: skip
PLAYED = [0, 1, 3, 4, 6, 7, 8, 9]


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    return hostile_catalogue(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def goal(catalogue):
    return goal_of(hostile_env(catalogue), BOLD)


def take(trips, moves=MOVES):
    trip = trips.begin()
    pages = [trips.step(trip, page, action) for page, action in moves]
    return trip, pages


@pytest.mark.parametrize("settings", [{}, {"observation_mode": "html"}, {"rules": "original"}, {"max_turns": 15}])
def test_a_trip_is_the_tree_of_an_agent_that_does_the_same(catalogue, goal, tmp_path, settings):
    trips = Trips(hostile_env(catalogue, **settings), goal=goal, seed=3, out=tmp_path)
    trip, pages = take(trips)
    assert pages == list(range(1, 10))
    agent = agents_tree(hostile_env(catalogue, **settings), trip.seed, {"goal": goal}, MOVES)
    assert len(trip.nodes) == len(agent.nodes) == 10
    for mine, expected in zip(trip.nodes, agent.nodes, strict=True):
        assert mine.snapshot.digest == expected.snapshot.digest
        assert mine == expected
    assert 0 < trip.nodes[9].reward <= 1
    agent.save(tmp_path / "agent")
    (file,) = tmp_path.glob("*.jsonl")
    assert file == trips.file_of(trip)
    assert file.read_bytes().splitlines()[1:] == (tmp_path / "agent").read_bytes().splitlines()[1:]


def test_the_pages_on_the_way_to_the_purchase_are_the_episode_that_was_played(catalogue, goal, tmp_path):
    trips = Trips(hostile_env(catalogue), goal=goal, out=tmp_path)
    trip, _ = take(trips)
    tree = Tree.load(trips.file_of(trip))
    assert list(tree.played) == PLAYED
    assert [tree.nodes[page].candidate.text for page in PLAYED[1:]] == [
        action for page, action in MOVES if action not in ("click[next >]", "click[description]")
    ]
    assert (tree.about["player"], tree.about["env"]) == ("person", "tsr/WebShop-v0")
    assert tree.spent.env_steps == len(MOVES)
    # An agent that plays only these actions meets the same observations and rewards.
    agent = agents_tree(
        hostile_env(catalogue),
        tree.seed,
        {"goal": goal},
        [(number, tree.nodes[page].candidate.text) for number, page in enumerate(PLAYED[1:])],
    )
    for page, expected in zip(PLAYED, agent.nodes, strict=True):
        assert (tree.nodes[page].observation, tree.nodes[page].reward) == (expected.observation, expected.reward)


def test_a_trip_ends_with_its_first_purchase_and_continues_from_no_page(catalogue, goal, tmp_path):
    trips = Trips(hostile_env(catalogue, rules="original"), goal=goal, out=tmp_path)
    trip, _ = take(trips)
    before = trips.file_of(trip).stat()
    for page in range(10):
        assert trips.step(trip, page, "search[other]") == 9
        assert trips.step(trip, page, "click[buy now]") == 9
    assert len(trip.nodes) == 10
    # Nor is the file written again.
    assert trips.file_of(trip).stat().st_mtime_ns == before.st_mtime_ns


def test_a_trip_without_turns_left_is_kept_too(catalogue, tmp_path):
    trips = Trips(hostile_env(catalogue, max_turns=2), seed=1, out=tmp_path)
    trip = trips.begin()
    assert trips.step(trip, 0, "search[shirt]") == 1
    assert end_of(trip) is None
    assert list(tmp_path.iterdir()) == []
    # Going back gives the turn back.
    assert trips.step(trip, 0, "search[soft]") == 2
    assert trips.step(trip, 2, "click[back to search]") == 3
    assert end_of(trip) == 3
    tree = Tree.load(trips.file_of(trip))
    assert tree.nodes[3].truncated
    assert list(tree.played) == [0, 2, 3]


def test_trips_of_one_server_do_not_meet(catalogue):
    trips = Trips(hostile_env(catalogue), seed=5)
    first, other = trips.begin(), trips.begin()
    assert trips.step(first, 0, "search[shirt]") == 1
    assert trips.step(other, 0, "search[soft]") == 1
    assert trips.step(first, 1, "click[next >]") == 2
    assert trips.state(first, 2).keywords == ("shirt",)
    assert (trips.state(other, 1).keywords, trips.state(first, 1).number) == (("soft",), 1)


@pytest.mark.parametrize("rules", ["fixed", "original"])
def test_equal_seeds_give_equal_goals_in_the_same_order(catalogue, rules):
    def goals(seed):
        trips = Trips(hostile_env(catalogue, rules=rules), seed=seed)
        return [trips.state(trips.begin(), 0).goal for _ in range(30)]

    assert goals(1) == goals(1)
    assert goals(1) != goals(2)
    assert goals(None) != goals(None)
    assert len(set(goals(1))) > 5


def test_a_file_that_could_not_be_written_is_written_when_the_shopper_tries_again(catalogue, goal, tmp_path):
    out = tmp_path / "out"
    trips = Trips(hostile_env(catalogue), goal=goal, out=out)
    out.rmdir()
    with pytest.raises(OSError, match="No such file"):
        take(trips)
    trip = trips.begin()
    for page, action in MOVES[:-1]:
        trips.step(trip, page, action)
    with pytest.raises(OSError, match="No such file"):
        trips.step(trip, *MOVES[-1])
    out.mkdir()
    assert trips.step(trip, *MOVES[-1]) == 9
    assert len(Tree.load(trips.file_of(trip)).nodes) == 10


def test_servers_with_equal_seeds_share_a_folder_without_overwriting(catalogue, goal, tmp_path):
    for _ in range(2):
        take(Trips(hostile_env(catalogue), goal=goal, seed=3, out=tmp_path))
    first, other = (json.loads(file.read_text(encoding="utf-8").splitlines()[0]) for file in tmp_path.iterdir())
    assert first == other


def test_a_trip_has_a_bounded_number_of_pages(catalogue):
    trips = Trips(hostile_env(catalogue), seed=1, max_pages=3)
    trip = trips.begin()
    assert trips.step(trip, 0, "search[a]") == 1
    assert trips.step(trip, 1, "search[b]") == 2
    with pytest.raises(TripTooLong, match="3"):
        trips.step(trip, 2, "search[c]")
    assert trips.step(trip, 1, "search[b]") == 2


def test_wrong_settings_are_reported_before_the_first_visitor(catalogue):
    with pytest.raises(ConfigError, match="goal"):
        Trips(hostile_env(catalogue), goal=10**6)
    with pytest.raises(ConfigError, match="one action"):
        Trips(hostile_env(catalogue, max_actions_per_turn=2))
    with pytest.raises(ConfigError, match="wanted a WebShop"):
        Trips(gym.make("tsr/FrozenLake-v0"))


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_too_many_visitors_push_out_the_oldest_and_newcomers_only_newcomers():
    visitors = Visitors(max_visitors=2)
    shopper = visitors.enter(Visit(1, Tree()))
    assert visitors.find(shopper) is not None
    passing = [visitors.enter(Visit(1, Tree())) for _ in range(1000)]
    assert visitors.find(shopper) is not None
    assert len(visitors) == 3
    assert [visitors.find(token) is None for token in passing[-3:]] == [True, False, False]
    visitors = Visitors(max_visitors=2)
    first, second = (visitors.enter(Visit(1, Tree())) for _ in range(2))
    assert visitors.find(second) is not None
    assert visitors.find(first) is not None
    third = visitors.enter(Visit(1, Tree()))
    assert visitors.find(third) is not None
    assert [visitors.find(token) is None for token in (first, second, third)] == [False, True, False]
    assert len(visitors) == 2


def test_idle_visitors_are_forgotten_and_busy_ones_are_not():
    clock = Clock()
    visitors = Visitors(idle_s=10, clock=clock)
    idle, busy = (visitors.enter(Visit(1, Tree())) for _ in range(2))
    for _ in range(3):
        clock.now += 6
        assert visitors.find(busy) is not None
    assert visitors.find(idle) is None
    assert len(visitors) == 1


def test_the_same_action_leads_to_the_same_page_and_what_means_nothing_to_none(catalogue):
    trips = Trips(hostile_env(catalogue), seed=1)
    trip = trips.begin()
    assert [trips.step(trip, 0, "search[shirt]") for _ in range(3)] == [1, 1, 1]
    assert trips.step(trip, 0, "search[soft shirt]") == 2
    for action in ("click[nothing]", "click[search]", "click[buy now]", "buy", "", "search[]"):
        assert trips.step(trip, 0, action) is None
    assert len(trip.nodes) == 3
    for page in (-1, 3, 10**6):
        with pytest.raises(IndexError):
            trips.step(trip, page, "search[shirt]")
        with pytest.raises(IndexError):
            trips.state(trip, page)


def test_a_visitor_is_found_by_a_long_token_alone_and_the_next_trip_takes_the_place_of_the_last():
    visitors = Visitors()
    visit, following = Visit(1, Tree()), Visit(2, Tree())
    token = visitors.enter(visit)
    assert visitors.find(token) is visit
    assert [visitors.find(other) for other in (None, "", token[:-1], token + "a", token.swapcase())] == [None] * 5
    visitors.keep(token, following)
    assert (visitors.find(token), len(visitors)) == (following, 1)
    visitors = Visitors(max_visitors=1000)
    tokens = {visitors.enter(Visit(1, Tree())) for _ in range(1000)}
    assert len(tokens) == len(visitors) == 1000
    # 32 random bytes in base 64.
    assert {len(token) for token in tokens} == {43}
