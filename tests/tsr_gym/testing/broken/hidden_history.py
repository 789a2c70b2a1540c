"""A wrapper that shows the last observations, and says that it holds nothing."""

from tests.tsr_gym.testing.worlds import PlainWrapper, Walk


class ShowsThePast(PlainWrapper):
    def __init__(self, env):
        super().__init__(env)
        self._past = ()

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        self._past = (observation,)
        return observation, info

    def step(self, action):
        observation, *rest = self.env.step(action)
        self._past = (*self._past[-2:], observation)
        return "\n".join(self._past), *rest


def make():
    return ShowsThePast(Walk())
