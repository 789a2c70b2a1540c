"""PPO in one file, in CleanRL's style, on a grid world's own vector environment: an example that learns.

FrozenLake is Gymnasium's 4x4 map without slip, as numbers. Success of the last finished episodes is printed.
Run: pip install -e '.[envs,cli,agents]' && python -m benchmarks.cleanrl_grid_worlds [--smoke]
"""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import Tensor, nn
from torch.distributions import Categorical

import tsr_gym  # noqa: F401 (registers the ids)


@dataclass(frozen=True, slots=True)
class Args:
    """Learn FrozenLake with PPO."""

    smoke: bool = False
    """Only show that everything runs: little training."""
    seed: int = 1
    """Of everything."""
    num_envs: int = 8
    """Environments side by side."""
    num_steps: int = 64
    """Steps of each between two updates."""
    total_steps: int = 60_000
    """Environment steps in all."""
    lr: float = 2.5e-3
    """Learning rate, which falls to 0."""
    gamma: float = 0.99
    """Discount."""
    lam: float = 0.95
    """Decay of the advantages."""
    epochs: int = 4
    """Passes over each batch."""
    minibatches: int = 4
    """Parts of a batch."""
    clip: float = 0.2
    """Clipping of the ratio."""
    entropy: float = 0.02
    """Weight of the entropy bonus."""


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


def learn(args: Args) -> float:
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
    updates = (2_000 if args.smoke else args.total_steps) // (args.num_steps * args.num_envs)
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


def gae(rewards: Tensor, values: Tensor, dones: Tensor, after: Tensor, done: Tensor, args: Args) -> Tensor:
    """Return the advantages `[T, N]`, with ``A_t = d_t + gamma lam A_{t+1}`` up to the end of each episode."""
    advantages, carried = torch.zeros_like(rewards), torch.zeros_like(after)
    for step in reversed(range(len(rewards))):
        last = step == len(rewards) - 1
        going = 1 - (done if last else dones[step + 1])
        delta = rewards[step] + args.gamma * (after if last else values[step + 1]) * going - values[step]
        advantages[step] = carried = delta + args.gamma * args.lam * going * carried
    return advantages


def descend(agent: Agent, optimizer: torch.optim.Optimizer, batch: list[Tensor], args: Args) -> None:
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"success {learn(tyro.cli(Args)):.2f}")
