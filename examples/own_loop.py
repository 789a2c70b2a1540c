"""Our environments in your own training loop: REINFORCE in plain PyTorch, without a tree.

python -m examples.own_loop
"""

import gymnasium as gym
import torch
from torch import nn

import tsr_gym  # noqa: F401 (registers the environments)

EPISODES, GAMMA, LR = 200, 0.9, 0.05
LAKE = ["SFF", "FHF", "FFG"]


def play(env: gym.Env, policy: nn.Module, seed: int) -> tuple[torch.Tensor, list[float], bool]:
    """Return the log-probabilities `[K]` of an episode's K actions, its rewards, and whether it was solved."""
    observation, info = env.reset(seed=seed)
    logprobs, rewards, over = [], [], False
    while not over:
        flat = torch.as_tensor(observation, dtype=torch.float32).flatten()
        choice = torch.distributions.Categorical(logits=policy(flat))
        action = choice.sample()
        logprobs.append(choice.log_prob(action))
        observation, reward, terminated, truncated, info = env.step(int(action))
        rewards.append(float(reward))
        over = terminated or truncated
    return torch.stack(logprobs), rewards, info["success"]


def returns_of(rewards: list[float]) -> torch.Tensor:
    """Return the discounted return after each action: G_k = r_k + gamma G_{k+1}."""
    returns, after = [], 0.0
    for reward in reversed(rewards):
        after = reward + GAMMA * after
        returns.append(after)
    return torch.tensor(returns[::-1])


def train(episodes: int = EPISODES) -> list[bool]:
    """Return of every episode whether it was solved."""
    torch.manual_seed(0)
    env = gym.make("tsr/FrozenLake-v0", obs_type="onehot", desc=LAKE, is_slippery=False, max_actions=12)
    size = torch.tensor(env.observation_space.shape).prod()
    policy = nn.Linear(int(size), int(env.action_space.n))
    optimizer = torch.optim.Adam(policy.parameters(), lr=LR)
    solved = []
    for episode in range(episodes):
        logprobs, rewards, success = play(env, policy, seed=episode)
        optimizer.zero_grad()
        (-(logprobs * returns_of(rewards)).sum()).backward()
        optimizer.step()
        solved.append(success)
    return solved


if __name__ == "__main__":
    found = train()
    print(f"solved of the first 50: {sum(found[:50])}, of the last 50: {sum(found[-50:])}")
