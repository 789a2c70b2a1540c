"""PPO on the grid worlds, by Stable-Baselines3 and in CleanRL's style: examples, and a check that they learn.

Stable-Baselines3 gets `gym.make` alone. FrozenLake is Gymnasium's 4x4 map without slip; Sokoban is generated rooms of
6x6 with one box, trained and tested on rooms that differ up to symmetry. Success on test instances is reported with
that of uniformly random actions on the same ones. The loop in CleanRL's style (`learn_vector`) plays FrozenLake in its
own vector environment; the success of the last finished episodes is printed.
Run: pip install -e '.[envs,cli,bench]' && python -m benchmarks.ppo_grid_worlds [--smoke]
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import Tensor, nn
from torch.distributions import Categorical

import tsr_gym
from benchmarks.measure import write_result

Act = Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is learned, from how much.

    Attributes:
        env_id: Gymnasium id.
        settings: Keywords of `gym.make`.
        steps: Environment steps of training.
        ppo: Settings of PPO that are not Stable-Baselines3's own.
    """

    env_id: str
    settings: dict[str, Any]
    steps: int
    ppo: dict[str, Any]


LESSONS = {
    "frozen_lake_4x4_no_slip": Lesson(
        "tsr/FrozenLake-v0",
        {"map_name": "4x4", "is_slippery": False, "obs_type": "discrete"},
        40_000,
        {"n_steps": 128, "ent_coef": 0.02},
    ),
    "sokoban_6x6_1_box": Lesson(
        "tsr/Sokoban-v0",
        {"obs_type": "onehot", "max_actions": 20},
        600_000,
        {"n_steps": 256, "batch_size": 512, "gamma": 0.97, "ent_coef": 0.01},
    ),
}


@dataclass(frozen=True, slots=True)
class Args:
    """Learn both worlds with Stable-Baselines3, FrozenLake in one file too; write results/sb3_grid_worlds.json."""

    smoke: bool = False
    """Only show that everything runs: little training, nothing is written."""
    seeds: int = 3
    """Runs per world."""


def success(lesson: Lesson, act: Act, instances: int = 512) -> float:
    """Return the share of test instances that are solved."""
    env = gym.make(lesson.env_id, split="test", **lesson.settings)
    solved = 0
    for seed in range(instances):
        observation, info = env.reset(seed=seed)
        over = False
        while not over:
            observation, _, terminated, truncated, info = env.step(act(observation))
            over = terminated or truncated
        solved += info["success"]
    return solved / instances


def learn(lesson: Lesson, seed: int, *, smoke: bool) -> dict[str, float]:
    """Train a policy of Stable-Baselines3; return the success of random actions and of the policy before and after."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    settings = {**lesson.settings, "split": "train"}
    envs = make_vec_env(lesson.env_id, n_envs=8, seed=1_000_000 * (seed + 1), env_kwargs=settings)
    model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **lesson.ppo)
    instances = 32 if smoke else 512
    dice = np.random.default_rng(seed)
    random = success(lesson, lambda observation: int(dice.integers(4)), instances)

    def act(observation: Any) -> int:
        return int(model.predict(observation)[0])

    before = success(lesson, act, instances)
    model.learn(2_048 if smoke else lesson.steps)
    return {"random": random, "untrained": before, "trained": success(lesson, act, instances)}


@dataclass(frozen=True, slots=True)
class VectorPpo:
    """Settings of PPO in CleanRL's style.

    Attributes:
        seed: Of network and environments.
        num_envs: Environments of the vector.
        num_steps: Steps of each between two updates.
        total_steps: Environment steps in all.
        lr: Learning rate, which falls to 0.
        gamma: Discount.
        lam: Decay of the advantages.
        epochs: Passes over each batch.
        minibatches: Parts of a batch.
        clip: Clipping of the ratio.
        entropy: Weight of the entropy bonus.
    """

    seed: int = 1
    num_envs: int = 8
    num_steps: int = 64
    total_steps: int = 60_000
    lr: float = 2.5e-3
    gamma: float = 0.99
    lam: float = 0.95
    epochs: int = 4
    minibatches: int = 4
    clip: float = 0.2
    entropy: float = 0.02


class Agent(nn.Module):
    """Actor and critic over a numbered state."""

    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        self.states = int(envs.single_observation_space.n)
        self.critic = nn.Sequential(nn.Linear(self.states, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(
            nn.Linear(self.states, 64), nn.Tanh(), nn.Linear(64, int(envs.single_action_space.n))
        )

    def forward(self, observations: Tensor, actions: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return actions, their log-probabilities, the entropies and the values, each `[B]`."""
        seen = nn.functional.one_hot(observations.long(), self.states).float()
        choice = Categorical(logits=self.actor(seen))
        actions = choice.sample() if actions is None else actions
        return actions, choice.log_prob(actions), choice.entropy(), self.critic(seen)[:, 0]


def learn_vector(args: VectorPpo) -> float:
    """Train, and return the success of the last hundred finished episodes."""
    torch.manual_seed(args.seed)
    envs = gym.make_vec(
        "tsr/FrozenLake-v0", args.num_envs, map_name="4x4", is_slippery=False, obs_type="discrete", max_actions=20
    )
    envs = RecordEpisodeStatistics(envs)
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    seen, done = envs.reset(seed=args.seed)[0], np.zeros(args.num_envs, dtype=bool)
    solved: list[bool] = []
    updates = args.total_steps // (args.num_steps * args.num_envs)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = args.lr * (1 - update / updates)
        states, actions, logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(6))
        for step in range(args.num_steps):
            states[step], dones[step] = torch.as_tensor(seen), torch.as_tensor(done)
            with torch.no_grad():
                actions[step], logprobs[step], _, values[step] = agent(states[step])
            seen, reward, ended, cut, infos = envs.step(actions[step].long().numpy())
            # An environment that ended before this step was only reset by it.
            solved += infos["success"][(ended | cut) & ~done].tolist()
            done = ended | cut
            rewards[step] = torch.as_tensor(reward)
        with torch.no_grad():
            after = agent(torch.as_tensor(seen))[3]
        advantages = gae(rewards, values, dones, after, torch.as_tensor(done).float(), args)
        batch = [part.flatten() for part in (states, actions, logprobs, advantages, advantages + values, 1 - dones)]
        for _ in range(args.epochs):
            for index in torch.randperm(batch[0].numel()).chunk(args.minibatches):
                descend(agent, optimizer, [part[index] for part in batch], args)
    envs.close()
    return float(np.mean(solved[-100:])) if solved else 0.0


def gae(rewards: Tensor, values: Tensor, dones: Tensor, after: Tensor, done: Tensor, args: VectorPpo) -> Tensor:
    """Return the advantages `[T, N]`, with ``A_t = d_t + gamma lam A_{t+1}`` up to the end of each episode."""
    advantages, carried = torch.zeros_like(rewards), torch.zeros_like(after)
    for step in reversed(range(len(rewards))):
        last = step == len(rewards) - 1
        going = 1 - (done if last else dones[step + 1])
        delta = rewards[step] + args.gamma * (after if last else values[step + 1]) * going - values[step]
        advantages[step] = carried = delta + args.gamma * args.lam * going * carried
    return advantages


def descend(agent: Agent, optimizer: torch.optim.Optimizer, batch: list[Tensor], args: VectorPpo) -> None:
    """Take a step of PPO; steps that only reset an environment do not count."""
    states, actions, old, advantages, returns, counts = batch
    _, logprobs, entropy, values = agent(states, actions)
    ratio = (logprobs - old).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - args.clip, 1 + args.clip))
    loss = policy - args.entropy * entropy + 0.25 * (values - returns) ** 2
    optimizer.zero_grad()
    ((loss * counts).sum() / counts.sum()).backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()


def main() -> None:
    """Learn, print, write."""
    args = tyro.cli(Args)
    seeds = range(1 if args.smoke else args.seeds)
    results = {
        name: {
            "settings": lesson.settings,
            "steps": lesson.steps,
            "runs": [learn(lesson, seed, smoke=args.smoke) for seed in seeds],
        }
        for name, lesson in LESSONS.items()
    }
    for name, result in results.items():
        print(name, result["runs"])
    if not args.smoke:
        write_result("sb3_grid_worlds", {"tsr_gym": tsr_gym.__version__, "results": results})
    torch.set_num_threads(1)
    print(f"in one file: success {learn_vector(VectorPpo(total_steps=2_000) if args.smoke else VectorPpo()):.2f}")


if __name__ == "__main__":
    main()
