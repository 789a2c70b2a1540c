"""Learner: one update of a policy, and of a critic where there is one, from a batch of trajectories."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.advantages import gae, grpo, value_targets
from tsr_gym.agents.batch import Batch
from tsr_gym.agents.config import LearnConfig
from tsr_gym.agents.critic import Critic
from tsr_gym.agents.layouts import Layout, LayoutChoice, Plan, attending, lay_out, plan_rows, why_only_padded
from tsr_gym.agents.logprobs import Head, read_head, token_logprobs
from tsr_gym.agents.losses import Given, StepWeights, clipped_value_loss, policy_loss, step_weights, whiten
from tsr_gym.agents.objective import Objective
from tsr_gym.agents.recomputing import recomputing
from tsr_gym.errors import ConfigError, TrainingDiverged
from tsr_gym.seeds import derive_seed

__all__ = ["Estimator", "Learner", "token_logprobs"]

Estimator = Callable[[Batch], Tensor]
Reader = Callable[[Layout], Tensor]


class _Material(NamedTuple):
    """What is known before the first step of an update; every tensor `[B, T]`, or `[B]` for the last two."""

    batch: Batch
    advantages: Tensor
    targets: Tensor | None = None
    sampler_logprobs: Tensor | None = None
    reference_logprobs: Tensor | None = None
    solved: Tensor | None = None
    counts: Tensor | None = None

    def rows(self, index: Tensor) -> "_Material":
        """Return some rows, cut to their longest."""
        part = self.batch.rows(index)
        width = part.ids.shape[1]
        others = [None if one is None else (one[index, :width] if one.dim() == 2 else one[index]) for one in self[1:]]
        return _Material(part, *others)  # type: ignore[arg-type]


class Learner:
    """Train a policy by PPO with a critic, or by GRPO without one (TSR Appendix B and E).

    By default no KL term; the clip is wider upwards; an entropy bonus; only sampled tokens count. PPO's advantages are
    whitened, GRPO's are not. How rows lie for the models, how many go through them together, and what is computed twice
    to save memory, changes the result by rounding only.

    Args:
        model: The policy, a causal language model.
        critic: For PPO, None for GRPO.
        config: Numbers.
        temperature: At which trajectories are sampled.
        autocast: Lower precision to compute in, None for the model's own.
        estimator: Advantages from a batch; None for the algorithm's own.
        objective: The loss; None for the paper's with the numbers of `config`.
        reference: A policy that stays as it is, for an objective with a KL term.
        layout: How rows lie for the models, see `plan_rows`; ``"auto"`` is padded where a model reads nothing else.
        logits: ``"whole"``, or ``"parts"``, which never holds the logits of many tokens at once.
        recompute: Whether activations are computed again in the backward pass, which takes time and saves memory.

    Raises:
        ConfigError: A model cannot do what is wanted.
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
        objective: Objective | None = None,
        reference: Any | None = None,
        layout: LayoutChoice = "padded",
        logits: Literal["whole", "parts"] = "whole",
        recompute: bool = False,
    ) -> None:
        self.model = model
        self.critic = critic
        self.config = config
        self.temperature = temperature
        self.autocast = autocast
        self.estimator = estimator or (grpo if critic is None else self._gae)
        self.objective = objective or _objective_of(config)
        self.reference = reference
        self.layout = _readable(layout, model)
        self.recompute = recompute
        self.heads = {id(one): _head_of(one) for one in (model, reference) if logits == "parts" and one is not None}
        self.device = next(model.parameters()).device
        self.optimizers = {"policy": self._adam(model, config.lr)}
        if critic is not None:
            self.optimizers["critic"] = self._adam(critic, config.critic_lr)

    def update(
        self, batch: Batch, *, seed: int = 0, solved: Tensor | None = None, counts: Tensor | None = None
    ) -> dict[str, float]:
        """Learn from a batch once, or `epochs` times.

        Args:
            batch: Trajectories in groups.
            seed: Of the order in which they are taken.
            solved: `[B]` bool, whether the row's trajectory solved its task, for an objective that imitates those.
            counts: `[B]`, how much the row's trajectory counts beside others, such as `selection_weights`.

        Returns:
            Means over the optimizer steps: the parts of the loss (see `ObjectiveLoss`), ``grad_norm`` and, with a
            critic, ``value_loss``, ``critic_grad_norm``.

        Raises:
            TrainingDiverged: A loss or gradient is not finite; that step was not taken.
        """
        self.model.eval()
        material = self._prepare(batch.to(self.device), solved, counts)
        steps: list[dict[str, float]] = []
        for rows in self._minibatches(material.batch, seed):
            try:
                steps.append(self._step(material.rows(rows)))
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

    def _plan(self, batch: Batch) -> Plan:
        whole = self.objective.needs_whole_sequences
        return plan_rows(batch, layout=self.layout, microbatch=self.config.microbatch, whole=whole)

    def _ready(self, plan: Plan) -> ExitStack:
        """Return a context in which the models read rows as planned, there and back."""
        trained = [self.model] if self.critic is None else [self.model, self.critic.backbone]
        with ExitStack() as stack:
            if plan.layout != "padded":
                stack.enter_context(attending(*trained))
            for model in trained if self.recompute else ():
                stack.enter_context(recomputing(model))
            return stack.pop_all()

    def _logprobs(self, model: Any, laid: Layout) -> tuple[Tensor, Tensor]:
        return laid.logprobs(model, temperature=self.temperature, head=self.heads.get(id(model)))

    def _prepare(self, batch: Batch, solved: Tensor | None, counts: Tensor | None) -> _Material:
        """Return what is known before the first step: what the models say now, and the advantages."""
        critic, reference, sampler = self.critic, self.reference, None
        readers: dict[str, Reader] = {}
        if critic is not None:
            readers["values"] = lambda laid: laid.values(critic)
        if self.config.old_logprobs == "learner":
            readers["old_logprobs"] = lambda laid: self._logprobs(self.model, laid)[0]
            sampler = batch.old_logprobs
        if reference is not None:
            readers["reference"] = lambda laid: self._logprobs(reference, laid)[0]
        found = self._read(batch, readers)
        of_reference = found.pop("reference", None)
        batch = replace(batch, **found)
        advantages = self.estimator(batch)
        targets = None if batch.values is None else value_targets(batch, advantages)
        if critic is not None:
            advantages = whiten(advantages, batch.sampled)
        return _Material(batch, advantages, targets, sampler, of_reference, solved, counts)

    def _read(self, batch: Batch, readers: Mapping[str, Reader]) -> dict[str, Any]:
        """Return what each reader makes of the rows, `[B, T]`."""
        found = {name: torch.zeros_like(batch.rewards) for name in readers}
        if not readers:
            return found
        plan = self._plan(batch)
        with torch.no_grad(), self._precision(), self._ready(plan):
            for index in plan.parts:
                part = batch.rows(index)
                laid = lay_out(part, plan.layout)
                for name, read in readers.items():
                    found[name][index, : part.ids.shape[1]] = read(laid)
        return found

    def _minibatches(self, batch: Batch, seed: int) -> Iterator[Tensor]:
        """Yield the rows of each optimizer step: whole trajectories, in an order that the seed decides."""
        number = batch.num_trajectories
        steps = max(1, round(number / self.config.minibatch))
        for epoch in range(self.config.epochs):
            generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
            order = torch.randperm(number, generator=generator) if steps > 1 else torch.arange(number)
            for chosen in order.chunk(steps):
                yield torch.isin(batch.trajectory, chosen.to(self.device)).nonzero()[:, 0]

    def _step(self, material: _Material) -> dict[str, float]:
        """Take an optimizer step on some trajectories."""
        weights = step_weights(self.objective, material.batch, solved=material.solved, counts=material.counts)
        plan = self._plan(material.batch)
        self._clear()
        sums: dict[str, float] = {}
        with self._ready(plan):
            for index in plan.parts:
                part = material.rows(index)
                loss, parts = self._loss(part, lay_out(part.batch, plan.layout), _cut(weights, index, part))
                for name, value in parts.items():
                    sums[name] = sums.get(name, 0.0) + float(value)
                loss.backward()  # type: ignore[no-untyped-call]
        return sums | self._descend(sums)

    def _loss(self, part: _Material, laid: Layout, weights: StepWeights) -> tuple[Tensor, dict[str, Tensor]]:
        with self._precision():
            logprobs, entropy = self._logprobs(self.model, laid)
            values = None if self.critic is None else laid.values(self.critic)
        given = Given.of(
            part.batch,
            part.advantages,
            weights,
            sampler_logprobs=part.sampler_logprobs,
            reference_logprobs=part.reference_logprobs,
        )
        loss, parts = policy_loss(self.objective, logprobs, entropy, given)
        if values is None or part.targets is None or part.batch.values is None:
            return loss, parts
        off = clipped_value_loss(values, part.batch.values, part.targets, weights.policy, clip=self.config.value_clip)
        return loss + off, parts | {"value_loss": off.detach()}

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


def _objective_of(config: LearnConfig) -> Objective:
    """Return the paper's objective with configured numbers."""
    return Objective(
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        entropy=config.entropy,
        aggregation=config.aggregation,
    )


def _readable(layout: LayoutChoice, model: Any) -> LayoutChoice:
    """Return a layout that a model can read: the wanted one, or padded where it may be any.

    Raises:
        ConfigError: The model cannot read the wanted one.
    """
    reason = None if layout == "padded" else why_only_padded(model)
    if reason is None:
        return layout
    if layout == "auto":
        return "padded"
    raise ConfigError(f"the model cannot read {layout} rows: {reason}; use layout padded or auto")


def _head_of(model: Any) -> Head:
    head = read_head(model)
    if head is None:
        raise ConfigError("the model does something unknown to its logits, so they cannot be taken in parts")
    return head


def _cut(weights: StepWeights, index: Tensor, part: _Material) -> StepWeights:
    """Return the weights of some rows of a step."""
    width = part.batch.ids.shape[1]
    imitation = None if weights.imitation is None else weights.imitation[index, :width]
    return StepWeights(weights.policy[index, :width], imitation)
