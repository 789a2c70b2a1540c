"""RewardScore: the reward, written down."""

from tests.tsr_gym.testing.worlds import Walk
from tsr_gym.wrappers import AnswerFormat
from tsr_gym.wrappers.score_wrapper import RewardScore


def test_the_score_is_the_reward_with_its_penalties():
    env = RewardScore(AnswerFormat(Walk(), penalty=0.5))
    env.reset(seed=1)
    for text in ("<answer>Right</answer>", "<think></think><answer>Right || Right</answer>"):
        _, reward, *_, info = env.step(text)
        assert info["score"] == reward
    assert env.score_of == "turn"
