"""Scorers by name, weighted sums of scores, and potentials."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym  # noqa: F401 (registers the worlds)
from tests.tsr_gym.testing.worlds import Walk
from tests.tsr_gym_envs.retrieval_qa.fakes import qa
from tsr_gym import ConfigError, Limits, clone, restore, snapshot
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import naive
from tsr_gym.wrappers import (
    AnswerFormat,
    FrozenLakeScore,
    RetrievalQAScore,
    ScoreWrapper,
    SokobanScore,
    TreeSearchWrapper,
    WebShopScore,
)
from tsr_gym.wrappers.score_wrapper import RatedTurn, RewardScore
from tsr_gym.wrappers.scorers import PotentialScore, WeightedScore, make_scorer
from tsr_gym_envs.frozen_lake.rules import ACTIONS, FrozenLakeState


@pytest.fixture
def lake():
    return gym.make("tsr/FrozenLake-v0", desc=["SFG"])


def test_a_scorer_is_named_as_a_configuration_names_it_or_given_as_it_is(lake):
    by_name = make_scorer("FrozenLakeScore(hole_penalty=3.0)", lake)
    assert type(by_name) is FrozenLakeScore
    assert by_name.hole_penalty == 3.0
    assert make_scorer(FrozenLakeScore, lake).hole_penalty == 10.0
    assert make_scorer("tsr_gym.wrappers.world_scores:FrozenLakeScore", lake).env is lake


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        ("NoSuchScore", "there is no scorer 'NoSuchScore': .*wanted one of .*FrozenLakeScore"),
        ("FrozenLakeScore(depth=1)", r"the scorer 'FrozenLakeScore' has no \['depth'\]; it has \['hole_penalty'\]"),
        ("AnswerFormat", "there is no scorer 'AnswerFormat'"),
        ("tsr_gym.wrappers:AnswerFormat", "made a AnswerFormat"),
    ],
)
def test_what_is_no_scorer_is_refused(lake, scorer, message):
    with pytest.raises(ConfigError, match=message):
        make_scorer(scorer, lake)


class Step(ScoreWrapper):
    """Fields gained: a score of turns."""

    def score(self, before, action, after, reward):
        return after.position - before.position


class Gap(ScoreWrapper):
    """Minus the way to the goal: a score of states."""

    score_of = "state"

    def score(self, before, action, after, reward):
        return after.position - after.goal


def walk(parts):
    env = WeightedScore(Walk(), parts)
    env.reset(seed=1)
    return env


def test_a_sum_is_weighted_of_states_alone_or_of_what_turns_gained():
    info = walk({"reward": (RewardScore, 10), "fields": (Step, -0.5)}).step("Right || Right")[4]
    # Two steps cost 0.2: 10 * -0.2 - 0.5 * 2.
    assert info["scores"] == {"reward": pytest.approx(-0.2), "fields": 2.0}
    assert info["score"] == pytest.approx(-3.0)
    env = walk({"gap": (Gap, 2.0), "again": (Gap, 1.0)})
    assert env.score_of == "state"
    goal = env.unwrapped.state.goal
    assert env.step("Right")[4]["score"] == 3.0 * (1 - goal)
    assert env.rate_state(env.unwrapped.state) == 3.0 * (1 - goal)
    env = walk({"reward": (RewardScore, 1.0), "gap": (Gap, 2.0)})
    assert env.score_of == "turn"
    goal = env.unwrapped.state.goal
    infos = [env.step(turn)[4] for turn in ("Right || Right", "Left", "junk")]
    assert [info["scores"]["gap"] for info in infos] == [2.0 - goal, 1.0 - goal, 1.0 - goal]
    assert [info["score"] for info in infos] == pytest.approx([-0.2 + 4.0, -0.1 - 2.0, 0.0])


def test_a_mixed_sum_ranks_paths_as_the_sum_of_what_the_parts_mean():
    parts = {"reward": (RewardScore, 3.0), "near": (partial(FrozenLakeScore, hole_penalty=2.0), 0.5)}
    env = TreeSearchWrapper(WeightedScore(gym.make("tsr/FrozenLake-v0"), parts))
    env.reset(seed=5)
    tree = env.search(
        RandomPolicy(("Left", "Down", "Right", "Up"), 2, form="{}"), lambda tree: naive(tree, rollouts=30)
    )
    assert tree.score_of == "turn"
    ends = tree.leaves()
    meant = {
        end: 3.0 * sum(tree.nodes[node].info["scores"]["reward"] for node in tree.path(end)[1:])
        + 0.5 * tree.nodes[end].info["scores"]["near"]
        for end in ends
    }
    constant = {round(tree.merit(end) - meant[end], 9) for end in ends}
    assert len(constant) == 1
    assert len({round(worth, 9) for worth in meant.values()}) >= 4


def test_a_score_of_states_that_looks_at_the_reward_cannot_be_mixed():
    class Paid(ScoreWrapper):
        score_of = "state"

        def score(self, before, action, after, reward):
            return reward

    env = walk({"paid": (Paid, 1.0), "fields": (Step, 1.0)})
    with pytest.raises(ConfigError, match="depends on the turn's reward"):
        env.step("Right")
    assert walk({"paid": (Paid, 2.0)}).step("Right")[4]["score"] == pytest.approx(-0.2)


def test_a_sum_can_be_a_part_or_a_potential_and_needs_parts():
    inner = partial(WeightedScore, parts={"gap": (Gap, 2.0)})
    env = walk({"inner": (inner, 1.0), "fields": (Step, 1.0)})
    assert env.step("Right || Right")[4]["score"] == 4.0 + 2.0
    shaped = PotentialScore(Walk(), inner(Walk()).rate_state, reward=False)
    shaped.reset(seed=1)
    assert shaped.step("Right")[4]["score"] == 2.0
    constant = partial(PotentialScore, potential=lambda state: 5.0, reward=False)
    env = WeightedScore(Walk(limits=Limits(max_turns=2)), {"potential": (constant, 1.0)})
    env.reset(seed=1)
    assert [env.step("Right")[4]["score"] for _ in range(2)] == [0.0, -5.0]
    with pytest.raises(ConfigError, match="at least one part"):
        WeightedScore(Walk(), {})


def test_the_parts_of_every_world_are_themselves_in_a_sum(tmp_path, monkeypatch):
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path))
    moves = partial(SokobanScore, potential="estimate")
    worlds = [
        (gym.make("tsr/Sokoban-v0"), moves, "Left || Up"),
        (gym.make("tsr/FrozenLake-v0", is_slippery=False), FrozenLakeScore, "Left || Up"),
        (gym.make("tsr/WebShop-v0", num_products=20), WebShopScore, "search[socks]"),
        (qa(), partial(RetrievalQAScore, kind="supporting"), "<search>Velden town</search>"),
        (qa(), partial(RetrievalQAScore, kind="novelty"), "<search>Velden town</search>"),
    ]
    for bare, scorer, turn in worlds:
        alone = scorer(bare)
        alone.reset(seed=4)
        wanted = alone.step(turn)[4]["score"]
        summed = WeightedScore(bare, {"alone": (scorer, 1.0), "reward": (RewardScore, 1.0)})
        summed.reset(seed=4)
        start = bare.unwrapped.state
        _, reward, *_, info = summed.step(turn)
        assert info["scores"] == {"alone": wanted, "reward": reward}
        gained = wanted - (alone.rate_state(start) if alone.score_of == "state" else 0.0)
        assert info["score"] == pytest.approx(gained + reward)


def test_snapshots_clones_and_specs_carry_it():
    parts = {"moves": ("SokobanScore(potential='estimate')", 0.5), "near": (SokobanScore, 1.0)}
    env = AnswerFormat(WeightedScore(gym.make("tsr/Sokoban-v0"), parts), think=False)
    env.reset(seed=3)
    before = snapshot(env)
    first = env.step("<answer>Up || Left</answer>")
    restore(env, before)
    twin, again = clone(env), gym.make(env.spec)
    again.reset(seed=3)
    for one in (env, twin, again):
        assert one.step("<answer>Up || Left</answer>") == first


def test_a_configuration_names_it_as_text():
    text = (
        "tsr_gym.wrappers.scorers:WeightedScore(parts={'reward': ('FrozenLakeScore(hole_penalty=2)', 2), "
        "'gain': ('tsr_gym.wrappers.scorers:PotentialScore(potential=\"FrozenLakeScore\", reward=False)', 1)})"
    )
    settings = {"desc": ["SFF", "FFG"], "is_slippery": False}
    (env,) = EnvPool("frozen_lake", settings, score=text).set([1])
    info = env.step("<think></think><answer>Right</answer>")[4]
    # The distance falls from 3 to 2: 2 * 1 for the state among turns, and 1 for the gain.
    assert info["scores"] == {"reward": -2.0, "gain": 1.0}
    assert (info["score"], env.tree.score_of) == (3.0, "turn")


LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
CELLS = range(16)
GAMMA = 0.9


def corner_lake(**settings):
    return gym.make("tsr/FrozenLake-v0", desc=list(LAKE), **settings)


def potentials(seed):
    """Return a potential as arbitrary as can be, larger than any return."""
    worth = np.random.default_rng(seed).normal(scale=2.0, size=16)
    return lambda state: float(worth[state.position])


def transitions(score, truncated=False):
    """Return Gymnasium's own dynamics, each transition with what a scorer gives for it: an oracle for the best play."""
    table = gym.make("FrozenLake-v1", desc=list(LAKE), success_rate=0.5).unwrapped.P

    def rated(cell, action, there, reward, over):
        before, after = FrozenLakeState(LAKE, cell), FrozenLakeState(LAKE, there)
        return score(RatedTurn(before, ACTIONS[action], after, float(reward), over, truncated and not over))

    return [
        [
            [(p, there, rated(cell, action, there, r, over), over) for p, there, r, over in table[cell][action]]
            for action in range(4)
        ]
        for cell in CELLS
    ]


def backup(moves, worth, gamma):
    """Return the worth of every action in every cell, `[16, 4]`, where `worth` is that of the next state."""

    def of(outcomes):
        return sum(p * (gain + gamma * worth[there] * (not over)) for p, there, gain, over in outcomes)

    return np.array([[of(outcomes) for outcomes in row] for row in moves])


def best_actions(values):
    """Return for every cell in which one can act the set of the best actions."""
    return [
        set(np.flatnonzero(values[cell] > values[cell].max() - 1e-7).tolist())
        for cell in CELLS
        if "".join(LAKE)[cell] not in "HG"
    ]


def iterated(score, gamma=GAMMA, sweeps=400):
    moves, values = transitions(score), np.zeros((16, 4))
    for _ in range(sweeps):
        values = backup(moves, values.max(axis=1), gamma)
    return values


def within(score, actions):
    """Return the sets of best actions by actions left, where the episode ends when none is left."""
    inside, last = transitions(score), transitions(score, truncated=True)
    worth, found = np.zeros(16), []
    for left in range(1, actions + 1):
        values = backup(last if left == 1 else inside, worth, 1.0)
        found.append(best_actions(values))
        worth = values.max(axis=1)
    return found


def reward(turn):
    return turn.reward


@pytest.mark.parametrize("seed", range(8))
def test_the_best_actions_of_every_cell_stay_the_best_whatever_the_potential(seed):
    phi = potentials(seed)
    plain, shaped = iterated(reward), iterated(PotentialScore(corner_lake(), phi, GAMMA).rate_turn)
    assert best_actions(shaped) == best_actions(plain)
    # Ng, Harada and Russell's Corollary 2: every action's value loses the potential of the state.
    for cell in CELLS:
        if "".join(LAKE)[cell] not in "HG":
            np.testing.assert_allclose(shaped[cell], plain[cell] - phi(FrozenLakeState(LAKE, cell)), atol=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda score: lambda turn: turn.reward + score.phi(turn.after),
        lambda score: lambda turn: turn.reward + score.phi(turn.after) - score.phi(turn.before),
        lambda score: lambda turn: turn.reward + GAMMA * score.phi(turn.after) - score.phi(turn.before),
    ],
    ids=["a bonus for the state", "a gain that forgets the discount", "a gain that forgets the zero at the end"],
)
def test_other_bonuses_change_what_is_best(wrong):
    plain = best_actions(iterated(reward))
    changed = [
        best_actions(iterated(wrong(PotentialScore(corner_lake(), potentials(seed), GAMMA)))) != plain
        for seed in range(8)
    ]
    assert sum(changed) >= 4


@pytest.mark.parametrize("seed", range(4))
def test_under_a_limit_of_actions_the_best_actions_stay_the_best_unless_the_potential_outlives_it(seed):
    plain = within(reward, 10)
    assert within(PotentialScore(corner_lake(), potentials(seed)).rate_turn, 10) == plain
    assert within(PotentialScore(corner_lake(), potentials(seed), end="terminated").rate_turn, 10) != plain


def test_along_a_path_the_gains_add_up_to_the_potential_of_its_end():
    env = TreeSearchWrapper(PotentialScore(corner_lake(), "FrozenLakeScore(hole_penalty=0)", weight=0.5, offset=6.0))
    env.reset(seed=2)
    tree = env.search(RandomPolicy(ACTIONS, 2, form="{}"), lambda tree: naive(tree, rollouts=12))

    def phi(index):
        row, column = divmod(tree.nodes[index].snapshot.layers[-1].state.episode.state.position, 4)
        return 0.5 * (6.0 - (3 - row) - (3 - column))

    ends = {True: 0, False: 0}
    for index in range(1, len(tree.nodes)):
        done = tree.nodes[index].done
        wanted = tree.total(index, "reward") + (0.0 if done else phi(index)) - phi(0)
        assert tree.merit(index) == pytest.approx(wanted)
        ends[done] += 1
    assert ends[True] == 12
    assert ends[False] > 12


def test_the_numbers_of_a_turn_by_hand():
    env = PotentialScore(Walk(), lambda state: state.position, 0.5, weight=2.0, offset=1.0)
    env.reset(seed=1)
    # Phi is 2 at the start and 6 after two steps: 0.5 * 6 - 2, and two steps cost 0.2.
    assert env.step("Right || Right")[4]["score"] == pytest.approx(-0.2 + 3.0 - 2.0)
    # At a limit the potential is nothing, or what it was.
    for end, score in (("done", -1.0), ("terminated", 1.0)):
        env = PotentialScore(Walk(limits=Limits(max_turns=2)), lambda state: state.position, reward=False, end=end)
        env.reset(seed=1)
        assert [env.step("Right")[4]["score"] for _ in range(2)] == [1.0, score]
    env = PotentialScore(gym.make("CartPole-v1"), lambda observation: -abs(observation[2]), reward=False)
    before, _ = env.reset(seed=1)
    after, *_, info = env.step(1)
    assert info["score"] == pytest.approx(abs(before[2]) - abs(after[2]))
    room = gym.make("tsr/Sokoban-v0", level="#######\n#@ $ .#\n#######", max_turns=None)
    shaped = PotentialScore(room, "SokobanScore(potential='oracle')")
    shaped.reset(seed=1)
    # Three moves from solved. The last pays 10.9 and ends the episode, with the potential at 0.
    assert [round(shaped.step("Right")[4]["score"], 9) for _ in range(3)] == [0.9, 0.9, 11.9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"potential": "SokobanScore"}, "of the reward alone"),
        ({"potential": "tsr_gym.wrappers.score_wrapper:RewardScore"}, "rates turns"),
        ({"potential": len, "gamma": 1.5}, "gamma >= 0 and <= 1"),
        ({"potential": len, "end": "never"}, "'never'"),
    ],
)
def test_what_is_no_potential_is_refused(arguments, message):
    def use():
        env = PotentialScore(gym.make("tsr/Sokoban-v0"), **arguments)
        env.reset(seed=1)
        env.step("Up")

    with pytest.raises(ConfigError, match=message):
        use()


def test_the_spec_makes_it_again():
    env = PotentialScore(corner_lake(), "FrozenLakeScore", weight=0.25, offset=4, end="terminated")
    again = gym.make(env.spec)
    assert isinstance(again, ScoreWrapper)
    for one in (env, again):
        one.reset(seed=7)
    assert env.step("Right")[4] == again.step("Right")[4]
