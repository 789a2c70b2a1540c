"""Libraries of others make, step and train on our environments, and Minari records and reads back what was played.

Not collected by default; `make test-clients` runs it in environments with the libraries.
"""

import json

import gymnasium as gym
import numpy as np
import pytest

import tsr_gym
from tsr_gym import FreeText
from tsr_gym.testing import check_snapshot
from tsr_gym.wrappers import StorableInfo

LAKE = {"obs_type": "onehot", "max_actions": 12}


def lake():
    return gym.make("tsr/FrozenLake-v0", **LAKE)


def played(env, seed):
    """Return texts and rewards of an episode of legal actions."""
    texts, rewards, over = [env.reset(seed=seed)[0]], [], False
    while not over:
        legal = env.unwrapped.legal_actions(env.unwrapped.state)
        text, reward, terminated, truncated, _ = env.step(legal[seed % len(legal)])
        texts.append(text)
        rewards.append(reward)
        over = terminated or truncated
    return texts, rewards


def test_stable_baselines_trains_with_masks_and_in_processes():
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import SubprocVecEnv

    envs = make_vec_env(lake, n_envs=2, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "spawn"})
    PPO("MlpPolicy", envs, n_steps=16, batch_size=16).learn(64)
    envs.close()
    rooms = make_vec_env("tsr/Sokoban-v0", n_envs=2, env_kwargs={"obs_type": "onehot"})
    assert is_masking_supported(rooms)
    rooms.reset()
    assert get_action_masks(rooms).shape == (2, 4)
    MaskablePPO("MlpPolicy", rooms, n_steps=16, batch_size=16).learn(64)


@pytest.mark.parametrize("name", ["tsr/WebShop-v0", "tsr/RetrievalQA-v0"])
def test_subprocesses_of_stable_baselines_play_pickled_environments(name):
    from stable_baselines3.common.vec_env import SubprocVecEnv

    made = gym.make(name)
    envs = SubprocVecEnv([lambda: made] * 2, start_method="spawn")
    envs.seed(4)
    assert envs.reset().tolist() == [gym.make(name).reset(seed=seed)[0] for seed in (4, 5)]
    envs.close()


def test_torchrl_makes_environments_by_their_id():
    import torch
    from torchrl.envs import GymEnv

    words = GymEnv("tsr/FrozenLake-v0")
    assert isinstance(words.rollout(2)["next", "observation"][0], str)
    env = GymEnv("tsr/FrozenLake-v0", categorical_action_encoding=True, **LAKE)
    head = torch.nn.Linear(6 * 4 * 4, 4)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    batch = env.rollout(20, break_when_any_done=False)
    scores = head(batch["observation"].float().flatten(1)).log_softmax(1)
    loss = -(scores.gather(1, batch["action"][:, None]) * batch["next", "reward"]).mean() + scores.mean()
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss)


def test_tianshou_collects_and_trains():
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.net.common import Net
    from tianshou.utils.torch_utils import policy_within_training_step

    env, envs = lake(), DummyVectorEnv([lake, lake])
    net = Net(state_shape=env.observation_space.shape, action_shape=env.action_space.n, hidden_sizes=[8])
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space)
    learner = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3))
    buffer = VectorReplayBuffer(200, 2)
    result = Collector(learner, envs, buffer).collect(n_step=40, random=True, reset_before_collect=True)
    assert result.n_collected_steps == 40
    with policy_within_training_step(learner.policy):
        statistics = learner.update(buffer=buffer, sample_size=16)
    assert np.isfinite(statistics.loss)


def test_skrl_wraps_and_trains(tmp_path):
    import torch
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
    from skrl.trainers.torch import SequentialTrainer

    class Policy(CategoricalMixin, Model):
        def __init__(self, **spaces):
            Model.__init__(self, **spaces)
            CategoricalMixin.__init__(self)
            self.net = torch.nn.Linear(self.num_observations, self.num_actions)

        def compute(self, inputs, role):
            return self.net(inputs["observations"].float()), {}

    class Value(DeterministicMixin, Model):
        def __init__(self, **spaces):
            Model.__init__(self, **spaces)
            DeterministicMixin.__init__(self)
            self.net = torch.nn.Linear(self.num_observations, 1)

        def compute(self, inputs, role):
            return self.net(inputs["observations"].float()), {}

    env = wrap_env(gym.make_vec("tsr/FrozenLake-v0", num_envs=2, vectorization_mode="sync", vector_kwargs={}, **LAKE))
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": env.device}
    models = {"policy": Policy(**spaces), "value": Value(**spaces)}
    config = PPO_CFG(rollouts=8, learning_epochs=1, mini_batches=1)
    config.experiment.directory = str(tmp_path)
    config.experiment.write_interval = config.experiment.checkpoint_interval = 0
    agent = PPO(models=models, memory=RandomMemory(memory_size=8, num_envs=2, device=env.device), cfg=config, **spaces)
    before = models["policy"].net.weight.detach().clone()
    SequentialTrainer(env=env, agents=agent, cfg={"timesteps": 16, "headless": True}).train()
    assert not torch.equal(before, models["policy"].net.weight)


@pytest.mark.parametrize("name", ["tsr/FrozenLake-v0", "tsr/Sokoban-v0", "tsr/WebShop-v0", "tsr/RetrievalQA-v0"])
def test_minari_records_texts_and_reads_them_back(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    import minari

    collector = minari.DataCollector(gym.make(name))
    wanted = [played(collector, seed) for seed in range(3)]
    collector.create_dataset("tsr/played-v0", algorithm_name="legal", author="us")
    data = minari.load_dataset("tsr/played-v0")
    assert [(list(way.observations), way.rewards.tolist()) for way in data.iterate_episodes()] == wanted
    assert isinstance(data.spec.observation_space, gym.spaces.Text)
    assert isinstance(collector.observation_space, FreeText)


@pytest.mark.parametrize("name", ["tsr/FrozenLake-v0", "tsr/Sokoban-v0", "tsr/WebShop-v0", "tsr/RetrievalQA-v0"])
def test_minari_records_the_infos_of_texts_and_reads_them_back(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    import minari

    env = gym.make(name)
    collector = minari.DataCollector(StorableInfo(env), record_infos=True)
    infos = [collector.reset(seed=3)[1]]
    over = False
    while not over:
        turn = env.unwrapped.optimal_turn(env.unwrapped.state, 5, 10) or "nothing"
        _, _, terminated, truncated, info = collector.step(turn)
        infos.append(info)
        over = terminated or truncated
    collector.create_dataset("tsr/texts-v0", algorithm_name="optimal", author="us")
    (way,) = minari.load_dataset("tsr/texts-v0").iterate_episodes()
    read = {key: [at.decode() if isinstance(at, bytes) else at for at in way.infos[key].tolist()] for key in way.infos}
    assert read == {key: [info[key] for info in infos] for key in infos[0]}
    assert sum(len(json.loads(turn)) for turn in read["executed"]) == env.unwrapped.episode.actions > 0


def test_minari_records_the_infos_of_arrays(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    import minari

    collector = minari.DataCollector(lake(), record_infos=True)
    _, first = collector.reset(seed=3)
    infos = [first, *(collector.step(0)[4] for _ in range(2))]
    collector.create_dataset("tsr/infos-v0", algorithm_name="left", author="us")
    (way,) = minari.load_dataset("tsr/infos-v0").iterate_episodes()
    for key in ("actions_left", "action_mask"):
        assert np.array_equal(way.infos[key], [info[key] for info in infos])


def test_snapshots_of_minatar_are_exact():
    from minatar.gym import register_envs

    register_envs()
    env = gym.make("MinAtar/Breakout-v1")
    assert env.observation_space.dtype == bool
    check_snapshot(env, other_processes=False)


def test_crafter_is_refused_by_the_attribute_that_holds_its_creatures():
    import crafter

    class Shell(gym.Env):
        action_space, observation_space = gym.spaces.Discrete(17), gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.game = crafter.Env(seed=seed)
            return self.game.reset(), {}

        def step(self, action):
            observation, reward, over, _ = self.game.step(int(action))
            return observation, float(reward), over, False, {}

    for num_resets in range(2):
        env = tsr_gym.replayable(Shell())
        for _ in range(num_resets):
            env.reset(seed=3)
            with pytest.raises(tsr_gym.SnapshotError, match=r"attribute game._world._chunks\[.*Shell: a set of"):
                tsr_gym.snapshot(env)
        assert tsr_gym.env_support(env).level == "none"
