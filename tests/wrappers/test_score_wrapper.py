"""ScoreWrapper and RewardScore: scores in info, never in rewards."""

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym.wrappers
from tests.tsr_gym.testing.worlds import Walk
from tsr_gym import ConfigError, Limits, restore, snapshot
from tsr_gym.wrappers import AnswerFormat, ScoreWrapper
from tsr_gym.wrappers.score_wrapper import RewardScore


class Progress(ScoreWrapper):
    """Fields gained, and everything that `score` was given."""

    def score(self, before, action, after, reward):
        self.given = (before, action, after, reward)
        return after.position - before.position


def test_the_score_rates_the_states_around_a_turn():
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


def test_the_score_sees_the_parsed_action_and_the_penalised_reward():
    env = Progress(AnswerFormat(Walk(), penalty=0.5))
    env.reset(seed=1)
    reward = env.step("<think></think><answer>Right || Fly</answer>")[1]
    assert env.given[1] == "Right || Fly"
    assert env.given[3] == reward == pytest.approx(-0.6)


def test_after_a_restore_the_score_begins_at_the_restored_state():
    env = Progress(Walk())
    env.reset(seed=1)
    env.step("Right")
    snap = snapshot(env)
    env.step("Right || Right")
    restore(env, snap)
    assert env.step("Left")[4]["score"] == -1.0
    assert env.given[0].position == 1


def test_a_foreign_environment_is_scored_by_its_observations():
    class Gap(ScoreWrapper):
        def score(self, before, action, after, reward):
            return float(after[0] - before[0])

    env = Gap(gym.make("CartPole-v1"))
    first, _ = env.reset(seed=1)
    for _ in range(3):
        second, *_, info = env.step(1)
        assert info["score"] == float(second[0] - first[0])
        first = second


def test_the_last_observation_of_a_foreign_environment_is_the_wrappers_state():
    class Same(ScoreWrapper):
        def score(self, before, action, after, reward):
            return float(before[0])

    env = Same(gym.make("CartPole-v1"))
    first, _ = env.reset(seed=1)
    state = env.wrapper_state()
    env.step(1)
    env.set_wrapper_state(state)
    assert env.step(0)[4]["score"] == float(first[0])


def test_the_subclass_writes_the_score():
    env = ScoreWrapper(Walk())
    env.reset(seed=1)
    with pytest.raises(NotImplementedError):
        env.step("Right")


def test_a_score_may_look_at_how_the_episode_ended():
    class Ends(ScoreWrapper):
        def rate_turn(self, turn):
            return 10.0 * turn.terminated + turn.truncated

    env = Ends(Walk(limits=Limits(max_turns=2)))
    env.reset(seed=1)
    assert [env.step("Left")[4]["score"] for _ in range(2)] == [0.0, 1.0]
    env.reset(seed=1)
    way = " || ".join(["Right"] * env.unwrapped.state.goal)
    assert env.step(way)[4]["score"] == 10.0


def test_a_score_of_states_rates_a_state_without_a_turn():
    class Place(ScoreWrapper):
        score_of = "state"

        def score(self, before, action, after, reward):
            return after.position

    env = Place(Walk())
    env.reset(seed=1)
    env.step("Right || Right")
    assert env.rate_state(env.unwrapped.state) == 2.0


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


GAMES = {
    "Sokoban": "SokobanState",
    "FrozenLake": "FrozenLakeState",
    "WebShop": "ShopState",
    "RetrievalQA": "RetrievalState",
}


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
