"""Small environments that know nothing of tsr_gym, or only its two methods."""

import threading
import time

import gymnasium as gym
import numpy as np


class Drift(gym.Env):
    """Push something along a line against the wind; what it holds can be copied."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.velocity = float(self.np_random.normal()), 0.0
        return self.observe(), {}

    def step(self, action):
        self.velocity += int(action) - 1 + self.np_random.normal() / 9
        self.position += self.velocity
        return self.observe(), -abs(self.position), abs(self.position) > 30, False, {"speed": abs(self.velocity)}

    def observe(self):
        return np.array([self.position, self.velocity])


class Stated(Drift):
    """Says what its state is."""

    def env_state(self):
        return self.position, self.velocity

    def set_env_state(self, state):
        self.position, self.velocity = state


class Locked(Drift):
    """Holds what cannot be copied."""

    def __init__(self):
        self.lock = threading.Lock()


class Unseeded(Locked):
    """Holds what cannot be copied, and does not repeat itself either."""

    def step(self, action):
        observation, *rest = super().step(action)
        return observation + np.random.default_rng().random(), *rest


class Many(Drift):
    """Has observations and infos of many kinds, actions that it writes into, and a watch."""

    observation_space = gym.spaces.Dict(
        {
            "place": gym.spaces.Tuple((Drift.observation_space, gym.spaces.Discrete(100))),
            "text": gym.spaces.Text(20),
            "bits": gym.spaces.MultiBinary(3),
        }
    )
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.started = time.perf_counter()
        return super().reset(seed=seed)

    def step(self, action):
        action *= 3
        observation, reward, *rest, info = super().step(action.sum().round() % 3)
        elapsed = time.perf_counter() - self.started
        info |= {"elapsed": elapsed, "near": {"goal", "wall"}, "all": [(1, None), np.float32(reward)], "me": Drift}
        return observation, np.float32(reward), *rest, info

    def observe(self):
        place = super().observe(), int(abs(self.position) % 100)
        return {"place": place, "text": f"{self.position:.3f}", "bits": np.array([1, 0, 1], np.int8)}


class ReusesItsBuffer(Drift):
    """Returns one array again and again, which spoils records of observations, but no snapshot."""

    def __init__(self):
        self.buffer = np.zeros(2)

    def observe(self):
        self.buffer[:] = self.position, self.velocity
        return self.buffer


class Echo(gym.Wrapper):
    """Remembers the last observation, and says so."""

    last = None

    def step(self, action):
        observation, *rest, info = self.env.step(action)
        info["before"], self.last = self.last, observation.tolist()
        return observation, *rest, info

    def reset(self, *, seed=None, options=None):
        self.last = None
        return self.env.reset(seed=seed, options=options)

    def wrapper_state(self):
        return None if self.last is None else tuple(self.last)

    def set_wrapper_state(self, state):
        self.last = None if state is None else list(state)
