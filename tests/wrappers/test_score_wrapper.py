"""ScoreWrapper, and dead ends."""

from collections import Counter
from functools import cache

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym
import tsr_gym.wrappers
from tests.tsr_gym.testing.worlds import Dice, Walk
from tests.tsr_gym_envs.sokoban.boards import fewest_moves, rows_of
from tsr_gym import Candidate, ConfigError, Expand, Limits, NotFinite, StateEnv, Step, clone, restore, snapshot
from tsr_gym.wrappers import AnswerFormat, ScoreWrapper, TreeSearchWrapper
from tsr_gym.wrappers.dead_ends import DeadEnds
from tsr_gym.wrappers.score_wrapper import RewardScore


class Progress(ScoreWrapper):
    """Fields gained, and everything that `score` was given."""

    def score(self, before, action, after, reward):
        self.given = (before, action, after, reward)
        return after.position - before.position


def test_the_score_rates_the_states_around_a_turn_and_the_parsed_action_and_penalised_reward():
    env = Progress(Walk())
    env.reset(seed=1)
    start = env.unwrapped.state
    bare = Walk()
    bare.reset(seed=1)
    *result, info = env.step("Right || Right")
    *wanted, bare_info = bare.step("Right || Right")
    assert result == wanted
    assert info == {**bare_info, "score": 2.0}
    assert type(info["score"]) is float
    assert env.given == (start, "Right || Right", env.unwrapped.state, result[1])
    env = Progress(AnswerFormat(Walk(), penalty=0.5))
    env.reset(seed=1)
    reward = env.step("<think></think><answer>Right || Fly</answer>")[1]
    assert env.given[1] == "Right || Fly"
    assert env.given[3] == reward == pytest.approx(-0.6)


class Odd(ScoreWrapper):
    """A score of the user's, which is `value` at the second field."""

    def __init__(self, env, value):
        super().__init__(env, value=value)
        self.value = value

    def score(self, before, action, after, reward):
        return self.value if after.position == 2 else 0.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "5", 10**400, np.zeros(2)])
def test_a_score_that_is_no_number_is_refused_with_the_scorer_and_the_node(value):
    env = TreeSearchWrapper(Odd(Walk(), value))
    env.reset(seed=1)
    env.step("Right")
    with pytest.raises(
        NotFinite, match=r"'Right' at node 1: wanted the score by tests\.wrappers\.test_score_wrapper:Odd"
    ):
        env.expand(1, ["Right"])
    before = snapshot(env)
    with pytest.raises(NotFinite, match=r"test_score_wrapper:Odd"):
        env.step("Right")
    # What was refused is not in the tree, and the episode stands where it stood.
    assert len(env.tree.nodes) == 2
    assert snapshot(env) == before
    assert env.expand(1, ["Left"]) == [2]


class Paid(gym.RewardWrapper):
    paid = float("nan")

    def reward(self, reward):
        return self.paid


class PaidTwice(Paid):
    paid = np.array([0.0, 1.0])


@pytest.mark.parametrize("make", [Paid, PaidTwice, lambda env: Progress(PaidTwice(env))])
def test_a_reward_that_is_no_number_is_refused_at_its_node(make):
    env = TreeSearchWrapper(make(Walk()))
    env.reset(seed=1)
    with pytest.raises(NotFinite, match=r"worlds:Walk, turn 'Right' at node 0: wanted the reward.* as a finite number"):
        env.expand(0, ["Right"])


def test_after_a_restore_the_score_begins_at_the_restored_state():
    env = Progress(Walk())
    env.reset(seed=1)
    env.step("Right")
    snap = snapshot(env)
    env.step("Right || Right")
    restore(env, snap)
    assert env.step("Left")[4]["score"] == -1.0
    assert env.given[0].position == 1


def test_a_score_of_states_rates_a_state_without_a_turn_and_is_finite():
    class Place(ScoreWrapper):
        score_of = "state"

        def score(self, before, action, after, reward):
            return float("inf") if after is None else after.position

    env = Place(Walk())
    env.reset(seed=1)
    env.step("Right || Right")
    assert env.rate_state(env.unwrapped.state) == 2.0
    with pytest.raises(NotFinite, match=r"wanted the score of a state by .*Place"):
        env.rate_state(None)
    plain = ScoreWrapper(Walk())
    plain.reset(seed=1)
    with pytest.raises(NotImplementedError):
        plain.step("Right")


def test_a_foreign_environment_is_scored_by_its_observations_of_which_the_last_is_the_wrappers_state():
    class Gap(ScoreWrapper):
        def score(self, before, action, after, reward):
            return float(after[0] - before[0])

    env = Gap(gym.make("CartPole-v1"))
    first, _ = env.reset(seed=1)
    state = env.wrapper_state()
    for start in (first, None, first):
        if start is not None:
            before = start
            env.set_wrapper_state(state)
        after, *_, info = env.step(1)
        assert info["score"] == float(after[0] - before[0])
        before = after


def test_a_score_may_look_at_how_the_episode_ended():
    class Ends(ScoreWrapper):
        def rate_turn(self, turn):
            return 10.0 * turn.terminated + turn.truncated

    env = Ends(Walk(limits=Limits(max_turns=2)))
    env.reset(seed=1)
    assert [env.step("Left")[4]["score"] for _ in range(2)] == [0.0, 1.0]
    env.reset(seed=1)
    assert env.step(" || ".join(["Right"] * env.unwrapped.state.goal))[4]["score"] == 10.0


@pytest.mark.parametrize(
    ("score_of", "look", "message"),
    [
        ("turn", lambda before, action, after, reward: 1.0, "Score rates turns"),
        ("state", lambda before, action, after, reward: after.position - before.position, "without the turn"),
        ("state", lambda before, action, after, reward: len(action), "without the turn"),
        ("state", lambda before, action, after, reward: after.position + reward, "depends on the turn's reward"),
    ],
    ids=["of turns", "looks before", "looks at the action", "looks at the reward"],
)
def test_what_looks_at_more_than_the_state_cannot_rate_one(score_of, look, message):
    class Score(ScoreWrapper):
        def score(self, before, action, after, reward):
            return look(before, action, after, reward)

    env = Score(Walk())
    env.score_of = score_of
    env.reset(seed=1)
    with pytest.raises(ConfigError, match=message):
        env.rate_state(env.unwrapped.state)


GAMES = {"Sokoban": "SokobanState", "FrozenLake": "FrozenLakeState", "WebShop": "ShopState"}
GAMES["RetrievalQA"] = "RetrievalState"


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("scorer", GAMES)
def test_a_scorer_of_another_game_is_refused_before_anything_is_played(game, scorer):
    env, make = gym.make(f"tsr/{game}-v0"), vars(tsr_gym.wrappers)[f"{scorer}Score"]
    if game == scorer:
        assert make(env).unwrapped is env.unwrapped
        return
    with pytest.raises(ConfigError) as caught:
        make(env)
    message = f"{scorer}Score rates a {GAMES[scorer]}, and {game}Env has a {GAMES[game]}: choose a score of this game"
    assert message in str(caught.value) or "wanted a RetrievalQAEnv under the wrappers" in str(caught.value)


def test_a_scorer_that_names_no_state_takes_every_environment():
    class Anything(ScoreWrapper):
        def score(self, before, action, after, reward):
            return reward

    class Boards(ScoreWrapper[np.ndarray]):
        """Names observations, as scorers of environments of others do."""

    assert Anything(gym.make("tsr/Sokoban-v0"))
    assert Boards(gym.make("CartPole-v1"))


def test_the_score_is_the_reward_with_its_penalties():
    env = RewardScore(AnswerFormat(Walk(), penalty=0.5))
    env.reset(seed=1)
    for text in ("<answer>Right</answer>", "<think></think><answer>Right || Right</answer>"):
        _, reward, *_, info = env.step(text)
        assert info["score"] == reward
    assert env.score_of == "turn"


DEPTH = 5
SEEDS = range(6)


def room(seed, *, pruned, limits=False):
    """Return a tiny room that takes three to five actions, with five turns of one action, at its start."""
    limited = {"max_turns": DEPTH, "max_actions_per_turn": 1, "solution_length": (3, DEPTH)}
    env = gym.make("tsr/Sokoban-v0", **limited)
    env = TreeSearchWrapper(DeadEnds(env, limits=limits) if pruned else env)
    env.reset(seed=seed)
    return env


def every_action(requests):
    """Answer with the four actions in order: a policy that leaves nothing out."""
    return [[Candidate(name) for name in ("Up", "Down", "Left", "Right")] for _ in requests]


def everything(tree):
    """Expand all nodes that are open, until none is left, and choose the best path to a success."""
    layer = [tree.root]
    while wishes := [Expand(node, 4) for node in layer if tree.nodes[node].is_open]:
        yield wishes
        layer = [child for wish in wishes for child in tree.children(wish.node)]
    return tree.best([node for node in tree.below() if tree.nodes[node].info["success"]], 1, "reward")


def searched(env):
    return env.search(every_action, everything)


@cache
def tree_of(seed, *, pruned, limits=False):
    return searched(room(seed, pruned=pruned, limits=limits))


def turns_to(tree, node):
    return [tree.nodes[step].candidate.text for step in tree.path(node)[1:]]


def open_positions(tree):
    """Return the positions, drawn on a grid, of the open nodes."""
    states = [(node, node.snapshot.layers[-1].state.episode.state) for node in tree.nodes if not node.done]
    return [(node, tuple(rows_of(state))) for node, state in states]


def test_exactly_what_no_exhaustive_search_solves_is_marked_in_a_small_room():
    marked = {
        rows: "dead_end" in node.info for seed in SEEDS for node, rows in open_positions(tree_of(seed, pruned=True))
    }
    assert marked == {rows: fewest_moves(rows) is None for rows in marked}
    assert Counter(marked.values())[True] >= 6
    assert Counter(marked.values())[False] > 50


@pytest.mark.parametrize("seed", SEEDS)
def test_with_limits_no_marked_node_could_still_be_won_with_the_actions_that_were_left(seed):
    positions = open_positions(tree_of(seed, pruned=True, limits=True))
    moves = {rows: fewest_moves(rows) for rows in {rows for _, rows in positions}}
    found = Counter(
        ("dead_end" in node.info, moves[rows] is None or moves[rows] > node.info["turns_left"])
        for node, rows in positions
    )
    assert found[True, False] == 0
    assert found[True, True] > 10


@pytest.mark.parametrize("limits", [False, True], ids=["dead ends", "limits too"])
def test_a_search_that_prunes_chooses_the_same_path_and_expands_fewer_nodes(limits):
    sizes = Counter()
    for seed in SEEDS:
        full, less = tree_of(seed, pruned=False), tree_of(seed, pruned=True, limits=limits)
        assert [turns_to(full, node) for node in full.chosen] == [turns_to(less, node) for node in less.chosen]
        assert len(full.chosen) == 1
        assert len(less.nodes) <= len(full.nodes)
        sizes["full"] += len(full.nodes)
        sizes["less"] += len(less.nodes)
    assert sizes["less"] < (0.4 if limits else 0.95) * sizes["full"]


def test_nothing_is_expanded_below_a_mark_and_nothing_else_has_changed():
    full, less = tree_of(3, pruned=False), tree_of(3, pruned=True)
    by_address = {full.branch(index): node for index, node in enumerate(full.nodes)}
    marks = 0
    for index, node in enumerate(less.nodes):
        twin = by_address[less.branch(index)]
        marked = "dead_end" in node.info
        marks += marked
        assert {**node.info, "dead_end": 0} == {**twin.info, "dead_end": 0}
        assert (node.observation, node.reward) == (twin.observation, twin.reward)
        assert (node.score, node.done) == (twin.score, twin.done)
        assert bool(less.children(index)) == (node.is_open and not node.done)
        assert node.is_open != (node.done or marked)
    assert marks > 10


LOST = "#####\n#$@.#\n#####"


def test_a_room_that_is_lost_from_the_start_is_marked_there():
    env = TreeSearchWrapper(DeadEnds(gym.make("tsr/Sokoban-v0", level=LOST)))
    assert env.reset(seed=1)[1]["dead_end"] == "dead square"
    assert not env.tree.nodes[0].is_open
    assert len(searched(env).nodes) == 1
    env = DeadEnds(gym.make("tsr/Sokoban-v0", level=LOST, action_type="discrete"), limits=True)
    assert env.reset(seed=1)[1]["dead_end"] == "dead square"
    assert (DeadEnds(Walk()).prunes, env.prunes) == ("dead ends", "dead ends within the limits")


def test_it_works_under_and_over_other_wrappers_and_after_a_restore():
    level = "######\n#@$ .#\n#    #\n######"
    for env in (
        AnswerFormat(DeadEnds(gym.make("tsr/Sokoban-v0", level=level)), think=False),
        DeadEnds(AnswerFormat(gym.make("tsr/Sokoban-v0", level=level), think=False)),
    ):
        env.reset(seed=1)
        start = snapshot(env)
        # From below, Up does nothing; pushed to the goal and beyond it would be stuck, so the walk alone is no harm.
        assert "dead_end" not in env.step("<answer>Down || Right</answer>")[4]
        twin = clone(env)
        restore(env, start)
        for one in (env, twin):
            assert "dead_end" not in one.step("<answer>Down</answer>")[4]


def test_on_the_lake_the_way_must_fit_into_what_is_left():
    settings = {"desc": ["SFFG", "HHHF"], "is_slippery": False, "max_turns": 2, "max_actions_per_turn": 2}
    env = DeadEnds(gym.make("tsr/FrozenLake-v0", **settings), limits=True)
    assert "dead_end" not in env.reset(seed=1)[1]
    # Three steps to go; two turns of two actions allow four, one turn two.
    assert env.step("Up")[4]["dead_end"] == "needs 3 actions of 2"
    env.reset(seed=1)
    assert "dead_end" not in env.step("Right")[4]
    env = DeadEnds(gym.make("tsr/FrozenLake-v0", **settings | {"max_turns": None, "max_actions": None}), limits=True)
    env.reset(seed=1)
    assert "dead_end" not in env.step("Up")[4]


class Line(StateEnv):
    """Walk along a line to 5, a step a turn."""

    def initial(self, rng, options):
        return 0

    def transition(self, state, action, rng):
        return Step(state + action, 0.0, state + action == 5, {})

    def observe(self, state):
        return state

    def fewest_actions(self, state):
        return abs(5 - state)


def test_where_a_turn_is_one_action_the_turns_that_are_left_are_counted():
    env = DeadEnds(Line(limits=Limits(max_turns=6)), prove=lambda state: None, limits=True)
    assert "dead_end" not in env.reset(seed=1)[1]
    assert "dead_end" not in env.step(1)[4]
    assert "dead_end" not in env.step(0)[4]
    assert env.step(0)[4]["dead_end"] == "needs 4 actions of 3"


def test_an_ended_episode_is_not_asked_for_proofs():
    asked = []
    env = DeadEnds(Walk(), prove=lambda state: asked.append(state) or "lost")
    env.reset(seed=1)
    while True:
        *_, terminated, truncated, info = env.step("Left")
        assert ("dead_end" in info) == (not truncated)
        if terminated or truncated:
            break
    assert len(asked) == 6


def proof(state):
    """Prove that the left half of the line is lost; named by its path in a test."""
    return "went the wrong way" if state.position < 0 else None


@pytest.mark.parametrize("prove", [proof, f"{__name__}:proof"], ids=["function", "path"])
def test_a_proof_can_be_ones_own(prove):
    env = DeadEnds(Walk(), prove=prove)
    env.reset(seed=1)
    assert "dead_end" not in env.step("Right")[4]
    assert env.step("Left || Left")[4]["dead_end"] == "went the wrong way"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeadEnds(gym.make("CartPole-v1")), "wanted a StateEnv"),
        (lambda: DeadEnds(Dice()), "has no dead_end"),
        (lambda: DeadEnds(Walk(), limits=True), "has no fewest_actions"),
    ],
)
def test_where_nothing_is_proven_it_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
