"""Learner: one update of a policy, and of a critic where there is one, from a batch of trajectories."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tsr_gym.agents.advantages import gae, grpo, value_targets
from tsr_gym.agents.batch import Batch
from tsr_gym.agents.config import LearnConfig
from tsr_gym.agents.critic import Critic
from tsr_gym.agents.losses import clipped_policy_loss, clipped_value_loss, token_weights, whiten
from tsr_gym.errors import TrainingDiverged
from tsr_gym.seeds import derive_seed

Estimator = Callable[[Batch], Tensor]


def token_logprobs(
    model: Any, ids: Tensor, present: Tensor, sampled: Tensor, *, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each sampled token and the entropy of the choice it was.

    Args:
        model: A Hugging Face causal language model.
        ids: `[B, T]` token ids.
        present: `[B, T]`, where there is a token.
        sampled: `[B, T]`, where to look; never in the first column.
        temperature: Of the sampling distribution.

    Returns:
        Both `[B, T]`, 0 where nothing was sampled.
    """
    logits = model(input_ids=ids, attention_mask=present.long(), use_cache=False).logits[:, :-1]
    chosen = torch.log_softmax(logits[sampled[:, 1:]].float() / temperature, dim=-1)
    said = ids[sampled]
    logprobs, entropy = torch.zeros(ids.shape, device=ids.device), torch.zeros(ids.shape, device=ids.device)
    logprobs[sampled] = chosen.gather(1, said[:, None])[:, 0]
    entropy[sampled] = -(chosen.exp() * chosen).sum(dim=-1)
    return logprobs, entropy


class Learner:
    """Train a policy by PPO with a critic, or by GRPO without one (TSR Appendix B and E).

    No KL term; the clip is wider upwards; an entropy bonus; only sampled tokens count. PPO's advantages are whitened,
    GRPO's are not.

    Args:
        model: The policy, a causal language model.
        critic: For PPO, None for GRPO.
        config: Numbers.
        temperature: At which trajectories are sampled.
        autocast: Lower precision to compute in, None for the model's own.
        estimator: Advantages from a batch; None for the algorithm's own.
    """

    def __init__(
        self,
        model: Any,
        critic: Critic | None,
        config: LearnConfig,
        *,
        temperature: float = 1.0,
        autocast: torch.dtype | None = None,
        estimator: Estimator | None = None,
    ) -> None:
        self.model = model
        self.critic = critic
        self.config = config
        self.temperature = temperature
        self.autocast = autocast
        self.estimator = estimator or (grpo if critic is None else self._gae)
        self.device = next(model.parameters()).device
        self.optimizers = {"policy": self._adam(model, config.lr)}
        if critic is not None:
            self.optimizers["critic"] = self._adam(critic, config.critic_lr)

    def update(self, batch: Batch, *, seed: int = 0) -> dict[str, float]:
        """Learn from a batch once, or `epochs` times.

        Args:
            batch: Trajectories in groups.
            seed: Of the order in which they are taken.

        Returns:
            Means over the optimizer steps: ``policy_loss``, ``entropy``, ``clip_fraction``, ``grad_norm`` and, with a
            critic, ``value_loss``, ``critic_grad_norm``.

        Raises:
            TrainingDiverged: A loss or gradient is not finite; that step was not taken.
        """
        batch = self._prepare(batch.to(self.device))
        advantages = self.estimator(batch)
        targets = None if batch.values is None else value_targets(batch, advantages)
        if self.critic is not None:
            advantages = whiten(advantages, batch.sampled)
        steps: list[dict[str, float]] = []
        for rows in self._minibatches(batch, seed):
            try:
                steps.append(self._step(batch, advantages, targets, rows))
            except TrainingDiverged as error:
                error.steps_taken = len(steps)
                raise
        return {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the policy's parameters by name, for an engine; a tied output head is named as well."""
        yield from self.model.state_dict().items()

    def _gae(self, batch: Batch) -> Tensor:
        return gae(batch, gamma=self.config.gamma, lam=self.config.lam)

    def _adam(self, model: Any, lr: float) -> torch.optim.AdamW:
        config = self.config
        return torch.optim.AdamW(model.parameters(), lr=lr, betas=config.betas, weight_decay=config.weight_decay)

    def _precision(self) -> Any:
        return torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None)

    def _prepare(self, batch: Batch) -> Batch:
        """Return the batch with the critic's values and, where wanted, log-probabilities computed again."""
        self.model.eval()
        if self.critic is None and self.config.old_logprobs == "sampler":
            return batch
        values, logprobs = torch.zeros_like(batch.rewards), batch.old_logprobs.clone()
        with torch.no_grad(), self._precision():
            for index, part in self._microbatches(batch, torch.arange(len(batch.ids), device=self.device)):
                width = part.ids.shape[1]
                if self.critic is not None:
                    values[index, :width] = self.critic(part.ids, part.present) * part.sampled
                if self.config.old_logprobs == "learner":
                    logprobs[index, :width] = self._logprobs(part)[0]
        return replace(batch, values=values if self.critic is not None else None, old_logprobs=logprobs)

    def _logprobs(self, part: Batch) -> tuple[Tensor, Tensor]:
        return token_logprobs(self.model, part.ids, part.present, part.sampled, temperature=self.temperature)

    def _minibatches(self, batch: Batch, seed: int) -> Iterator[Tensor]:
        """Yield the rows of each optimizer step: whole trajectories, in an order that the seed decides."""
        number = batch.num_trajectories
        steps = max(1, round(number / self.config.minibatch))
        for epoch in range(self.config.epochs):
            generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
            order = torch.randperm(number, generator=generator) if steps > 1 else torch.arange(number)
            for chosen in order.chunk(steps):
                yield torch.isin(batch.trajectory, chosen.to(self.device)).nonzero()[:, 0]

    def _microbatches(self, batch: Batch, rows: Tensor) -> Iterator[tuple[Tensor, Batch]]:
        """Yield rows that go through the model together, of similar length, so that little is padding."""
        lengths = batch.present[rows].sum(dim=1)
        for index in torch.split(rows[lengths.argsort(stable=True)], self.config.microbatch):
            yield index, batch.rows(index)

    def _step(self, batch: Batch, advantages: Tensor, targets: Tensor | None, rows: Tensor) -> dict[str, float]:
        weights = torch.zeros_like(batch.rewards)
        whole = batch.rows(rows)
        weights[rows, : whole.ids.shape[1]] = token_weights(whole, self.config.aggregation)
        self._clear()
        sums: dict[str, float] = {}
        for index, part in self._microbatches(batch, rows):
            width = part.ids.shape[1]
            losses = self._losses(
                part,
                advantages[index, :width],
                weights[index, :width],
                None if targets is None else targets[index, :width],
            )
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach())
            total = losses["policy_loss"] - self.config.entropy * losses["entropy"]
            if "value_loss" in losses:
                total = total + losses["value_loss"]
            total.backward()  # type: ignore[no-untyped-call]
        return sums | self._descend(sums)

    def _losses(self, part: Batch, advantages: Tensor, weights: Tensor, targets: Tensor | None) -> dict[str, Tensor]:
        config = self.config
        with self._precision():
            logprobs, entropy = self._logprobs(part)
            values = None if self.critic is None else self.critic(part.ids, part.present)
        policy = clipped_policy_loss(
            logprobs, part.old_logprobs, advantages, weights, clip_low=config.clip_low, clip_high=config.clip_high
        )
        losses = {
            "policy_loss": policy.loss,
            "clip_fraction": policy.clip_fraction,
            "entropy": (weights * entropy).sum(),
        }
        if values is not None and targets is not None and part.values is not None:
            losses["value_loss"] = clipped_value_loss(values, part.values, targets, weights, clip=config.value_clip)
        return losses

    def _descend(self, losses: dict[str, float]) -> dict[str, float]:
        """Take the step whose gradients are there, unless it is not finite."""
        norms = {}
        for name, optimizer in self.optimizers.items():
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            norms[name] = float(torch.nn.utils.clip_grad_norm_(parameters, self.config.grad_clip))
        gradients = {f"the {name}'s gradient": norm for name, norm in norms.items()}
        bad = [name for name, value in {**losses, **gradients}.items() if not abs(value) < float("inf")]
        if bad:
            self._clear()
            raise TrainingDiverged(
                f"{', '.join(bad)} became NaN or infinite, and the step was not taken: lower the learning rate, or "
                "look at the last trees for a reward or log-probability that is not finite"
            )
        for optimizer in self.optimizers.values():
            optimizer.step()
        return {"grad_norm": norms["policy"]} | ({"critic_grad_norm": norms["critic"]} if "critic" in norms else {})

    def _clear(self) -> None:
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
