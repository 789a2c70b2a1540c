"""Guide: a value head on the policy that a run learns from all of its own episodes, for its searches to go by.

It is fitted in closed form, so that the head is all that it remembers.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.models.critic import Critic

FILE = "guide.safetensors"


class Guide:
    """The return to come in each state of a run's episodes, read off the policy's last hidden states.

    Algorithms without a critic have no values to search by. After each update the head is fitted to the returns of all
    episodes that the update brought, those included that no filter kept. With x the hidden state at the end of a
    prompt and a 1, y the rewards from that turn on, and w the head with its bias:

        ``w <- w + (X'X + l I)^-1 X'(y - X w)``,  ``l = inertia * mean(x'x) / size(x)``

    which is the least squares fit that also stays close to the head before, as `inertia` states of mean size would hold
    it there. The head begins at 0, and the policy takes no gradient from it.

    Args:
        model: The policy.
        inertia: States that the head before counts for.
        max_batch: Most prompts in a forward pass.
    """

    def __init__(self, model: "torch.nn.Module", *, inertia: float = 32.0, max_batch: int = 64) -> None:
        self.critic = Critic.on(model)
        self.inertia = inertia
        self.max_batch = max_batch

    @torch.no_grad()
    def learn(self, groups: Sequence[Group]) -> float | None:
        """Fit the head, and return the share of the variance of returns that it explained before it saw them.

        None where there are no turns, or returns do not vary. Negative where the mean would have said more.
        """
        prompts, returns = _states(groups)
        if not prompts:
            return None
        parts = [prompts[start : start + self.max_batch] for start in range(0, len(prompts), self.max_batch)]
        states = torch.cat([self._hidden(part) for part in parts])
        x = torch.cat([states, torch.ones_like(states[:, :1])], dim=1)
        head = self.critic.head
        w = torch.cat([head.weight[0], head.bias]).double().cpu()
        off = torch.tensor(returns, dtype=torch.float64) - x @ w
        ridge = self.inertia * (x * x).sum(1).mean() / x.shape[1]
        w = w + torch.linalg.solve(x.T @ x + ridge * torch.eye(x.shape[1], dtype=x.dtype), x.T @ off)
        head.weight.copy_(w[None, :-1])
        head.bias.copy_(w[-1:])
        spread = float(torch.tensor(returns, dtype=torch.float64).var(unbiased=False))
        return None if spread == 0 else 1 - float((off * off).mean()) / spread

    def save(self, folder: Path) -> None:
        """Write the head into a checkpoint's folder."""
        save_file(self.critic.state_dict(), folder / FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        self.critic.load_state_dict(load_file(folder / FILE))

    def _hidden(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Return the last hidden state at the end of each prompt, `[B, H]`, in double precision."""
        ends = torch.tensor([len(prompt) - 1 for prompt in prompts])
        ids = torch.zeros(len(prompts), int(ends.max()) + 1, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
        present = torch.arange(ids.shape[1]) <= ends[:, None]
        device = self.critic.head.weight.device
        hidden = self.critic.hidden(
            input_ids=ids.to(device), attention_mask=present.long().to(device), use_cache=False
        ).cpu()
        return hidden[torch.arange(len(prompts)), ends].double()


def _states(groups: Sequence[Group]) -> tuple[list[tuple[int, ...]], list[float]]:
    """Return the prompt of every turn, and the rewards from it on."""
    prompts, returns = [], []
    for trajectory in (one for group in groups for one in group.trajectories):
        rest = 0.0
        for turn in reversed(trajectory.turns):
            rest += turn.reward
            if turn.prompt_ids:
                prompts.append(turn.prompt_ids)
                returns.append(rest)
    return prompts, returns
