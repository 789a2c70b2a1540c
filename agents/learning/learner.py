"""Learner: one update of a policy, and of a critic where there is one, from a batch of trajectories."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tsr_gym.agents.learning.advantages.choose_estimator import Chosen, choose_estimator, estimated
from tsr_gym.agents.learning.batch import Batch, LayoutChoice
from tsr_gym.agents.learning.estimators import Estimator
from tsr_gym.agents.learning.layouts import Layout, RowPlan, attending, lay_out, plan_rows, why_only_padded
from tsr_gym.agents.learning.losses import (
    Given,
    StepWeights,
    clipped_value_loss,
    policy_counts,
    policy_loss,
    step_weights,
    whiten,
)
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.learning.spikes import GradientMemory, SpikeRule
from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.models.logprobs import Head, read_head, token_logprobs
from tsr_gym.agents.models.lora import merged_weights
from tsr_gym.agents.models.sharding import (
    own_rows,
    recompute_activations,
    settle,
    shard,
    wake,
    whole,
    whole_tensor,
    whole_weights,
)
from tsr_gym.agents.processes import ALONE, Processes
from tsr_gym.errors import ConfigError, TrainingDiverged
from tsr_gym.seeds import derive_seed

__all__ = ["Estimator", "Learner", "token_logprobs"]

Reader = Callable[[Layout], Tensor]
# Tokens of the forward pass that looks at new weights.
_TOKENS = 16


class _Material(NamedTuple):
    """The inputs of an update, computed before its first step; every tensor `[B, T]`."""

    batch: Batch
    advantages: Tensor
    targets: Tensor | None = None
    sampler_logprobs: Tensor | None = None
    reference_logprobs: Tensor | None = None

    def rows(self, index: Tensor) -> "_Material":
        """Return some rows, cut to their longest."""
        part = self.batch.rows(index)
        width = part.ids.shape[1]
        others = [None if tensor is None else tensor[index, :width] for tensor in self[1:]]
        return _Material(part, *others)  # type: ignore[arg-type]


class Learner:
    """Train a policy by PPO with a critic, or by GRPO without one (TSR Appendix B and E), or as configured.

    Defaults: no KL term, a clip that is wider upwards, an entropy bonus; only sampled tokens count. Advantages over a
    critic are whitened, others are not. The layout of the rows (`Batch.layout`), the size of micro-batches and
    recomputed activations change the result by rounding only.

    Args:
        model: The policy, a causal language model.
        critic: For estimators that compare with a critic, None for others.
        config: Estimator, objective and numbers.
        temperature: Temperature at which trajectories are sampled.
        autocast: Lower precision to compute in, None for the model's own.
        estimator: Estimator in place of the configuration's.
        reference: A frozen policy, for an objective with a KL term.
        processes: The processes that learn together, each with an equal learner. Their models are sharded over them,
            and every method must be called in all of them. Every process gets the whole batch and reads its part of the
            rows; gradients add up, so that the number of processes changes the result by rounding only.

    Attributes:
        gradients: Memory of the spike rule; part of a checkpoint.
        advantages: `[B, T]`, of the last batch, as used in the loss.
        num_read: Rows of the running update that this process has learned from.

    Raises:
        ConfigError: A model does not support a setting, or a part is missing.
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
        reference: Any | None = None,
        processes: Processes = ALONE,
    ) -> None:
        if config.objective.kl_weight and reference is None:
            raise ConfigError("the objective has a KL term: wanted a reference policy, got none")
        self.model = model
        self.critic = critic
        self.config = config
        self.objective = config.objective
        self.temperature = temperature
        self.autocast = autocast
        choice = choose_estimator(config.estimator, critic=critic is not None, gamma=config.gamma, lam=config.lam)
        self.choice = choice if estimator is None else Chosen(estimator, choice.targets)
        self.reference = reference
        self.processes = processes
        read = (model, reference) if config.logits == "parts" else ()
        self.heads = {id(part): _head_of(part) for part in read if part is not None}
        self.spikes = SpikeRule(skip=config.skip_spikes)
        self.gradients = GradientMemory()
        self.advantages = torch.zeros(0, 0)
        self.num_read = 0
        self.device = next(model.parameters()).device
        self._spread()
        self.optimizers = {"policy": self._adam(model, config.lr)}
        if critic is not None:
            self.optimizers["critic"] = self._adam(critic, config.critic_lr)

    def update(
        self, batch: Batch, *, seed: int = 0, as_many: int | None = None, lr_scale: float = 1.0
    ) -> dict[str, float]:
        """Learn from a batch once, or `epochs` times.

        Args:
            batch: Trajectories in groups.
            seed: Seed of the order of the trajectories.
            as_many: Number of trajectories for the number of steps by `LearnConfig.minibatch`; None for their own
                number.
            lr_scale: Factor of the learning rates in this update.

        Returns:
            Means over the optimizer steps: the parts of the loss (see `ObjectiveLoss`), ``grad_norm``, the shares of
            steps whose gradient ``spikes`` and that were ``skipped`` for it, and, with a critic, ``value_loss`` and
            ``critic_grad_norm``. Then the policy's ``lr``, and the number of steps, ``optimizer_steps``.

        Raises:
            ConfigError: The model cannot read rows in the layout of the batch.
            TrainingDiverged: A loss or gradient is not finite; that step was not taken.
        """
        # No dropout: ratios compare log-probabilities of the same network.
        self.model.eval()
        # Also where the advantages are refused, no gradient of the update before is left.
        self._clear()
        self.num_read = 0
        material = self._prepare(batch.to(self.device))
        self.advantages = material.advantages
        steps: list[dict[str, float]] = []
        with self._slowed(lr_scale) as lr:
            for rows in self._minibatches(material.batch, seed, as_many):
                try:
                    steps.append(self._step(material.rows(rows)))
                except TrainingDiverged as error:
                    error.steps_taken = len(steps)
                    raise
        means = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
        return means | {"lr": lr, "optimizer_steps": len(steps)}

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the policy's parameters by name, for an engine, with LoRA matrices merged into them.

        They are unsharded, and a tied output head is included under its own name.
        """
        with whole_weights(self.model) as weights:
            yield from merged_weights(self.model, weights)

    def sampling(self) -> AbstractContextManager[None]:
        """Return a context in which every process holds the unsharded policy, and may sample from it alone."""
        return whole(self.model)

    def readable(self, layout: LayoutChoice) -> LayoutChoice:
        """Return a layout that the model can read: the given one, or padded for ``"auto"``.

        Raises:
            ConfigError: The model cannot read the given one.
        """
        if layout == "padded" or self._only_padded is None:
            return layout
        if layout == "auto":
            return "padded"
        raise ConfigError(f"the model cannot read {layout} rows: {self._only_padded}; use layout padded or auto")

    @cached_property
    def _only_padded(self) -> str | None:
        return why_only_padded(self.model)

    def _spread(self) -> None:
        """Shard the models over the processes, or offload them to the memory of the CPU."""
        offload = self.config.offload
        if self.processes.size == 1 and not offload:
            return
        # The result of this test is kept. It runs here on the whole model; a sharded one would need all processes.
        self.readable("auto")
        critic = () if self.critic is None else (self.critic.backbone, self.critic.head)
        models = [model for model in (self.model, self.reference, *critic) if model is not None]
        owners = [{id(parameter) for parameter in model.parameters()} for model in models]
        for number, model in enumerate(models):
            # A critic's head on the policy's backbone shares its parameters, and is sharded with the policy.
            if not owners[number] & set().union(*owners[:number]):
                shard(model, self.processes, self.device, offload=offload)
        settle(self.model, self.device)

    def _adam(self, model: Any, lr: float) -> torch.optim.AdamW:
        config = self.config
        # With LoRA most parameters are frozen.
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return torch.optim.AdamW(trained, lr=lr, betas=config.betas, weight_decay=config.weight_decay)

    @contextmanager
    def _slowed(self, scale: float) -> Iterator[float]:
        """Scale all learning rates inside the context, and yield the policy's."""
        groups = [group for optimizer in self.optimizers.values() for group in optimizer.param_groups]
        rates = [group["lr"] for group in groups]
        try:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate * scale
            yield rates[0] * scale
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    def _precision(self) -> Any:
        return torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None)

    def _plan(self, batch: Batch) -> RowPlan:
        whole = self.objective.needs_whole_sequences
        layout = self.readable(batch.layout)
        rows = self.config.rows_per_pass(batch.ids.shape[1])
        return plan_rows(batch, layout=layout, microbatch=rows, whole=whole)

    def _ready(self, plan: RowPlan) -> ExitStack:
        """Return a context in which the models read rows as planned, in the forward and the backward pass."""
        trained = [self.model] if self.critic is None else [self.model, self.critic.backbone]
        with ExitStack() as stack:
            if plan.layout != "padded":
                stack.enter_context(attending(*trained))
            for model in trained if self.config.recompute else ():
                stack.enter_context(recompute_activations(model))
            return stack.pop_all()

    def _logprobs(self, model: Any, laid: Layout) -> tuple[Tensor, Tensor]:
        return laid.logprobs(model, temperature=self.temperature, head=self.heads.get(id(model)))

    def _prepare(self, batch: Batch) -> _Material:
        """Return the inputs of an update: the outputs of the models before the first step, and advantages."""
        critic, reference, sampler = self.critic, self.reference, None
        readers: dict[str, Reader] = {}
        if critic is not None:
            readers["values"] = lambda laid: laid.values(critic)
        if self.config.old_logprobs == "learner":
            readers["old_logprobs"] = lambda laid: self._logprobs(self.model, laid)[0]
            sampler = batch.old_logprobs
        if reference is not None:
            readers["reference"] = lambda laid: self._logprobs(reference, laid)[0]
        outputs = self._read(batch, readers)
        of_reference = outputs.pop("reference", None)
        batch = replace(batch, **outputs)
        # Targets come from advantages before whitening, which would change their scale.
        learned = policy_counts(self.objective, batch) > 0
        advantages = self._advantages(batch, learned)
        targets = None if batch.values is None else self.choice.targets(batch, advantages)
        if critic is not None and not self.choice.compares:
            advantages = whiten(advantages, batch.sampled & learned[:, None])
        return _Material(batch, advantages, targets, sampler, of_reference)

    def _advantages(self, batch: Batch, learned: Tensor) -> Tensor:
        """Return the estimator's advantages of the rows that carry a policy gradient, `[B, T]`, 0 elsewhere.

        The estimator does not get the other rows: in a baseline, imitated successes would make all plain play a
        failure.
        """
        advantages, index = torch.zeros_like(batch.old_logprobs), learned.nonzero()[:, 0]
        if len(index):
            part = batch.rows(index)
            advantages[index, : part.ids.shape[1]] = estimated(self.choice.estimator, part).to(advantages.dtype)
        return advantages

    def _read(self, batch: Batch, readers: Mapping[str, Reader]) -> dict[str, Any]:
        """Return the output of each reader on the rows, by name, `[B, T]`."""
        outputs = {name: torch.zeros_like(batch.old_logprobs) for name in readers}
        if not readers:
            return outputs
        plan = self._plan(batch)
        wake(self.model)
        with torch.no_grad(), self._precision(), self._ready(plan):
            for index, counts in self.processes.deal(plan.parts):
                part = batch.rows(index)
                laid = lay_out(part, plan.layout)
                for name, read in readers.items():
                    outputs[name][index, : part.ids.shape[1]] = read(laid) * counts
        # Each process has filled its own rows and left 0 elsewhere, so that the total has all rows.
        return {name: self.processes.total(output) for name, output in outputs.items()}

    def _minibatches(self, batch: Batch, seed: int, as_many: int | None) -> Iterator[Tensor]:
        """Yield the rows of each optimizer step: whole trajectories, in an order by the seed."""
        number = batch.num_trajectories
        by_size = max(1, round((as_many or number) / self.config.minibatch))
        steps = min(self.config.steps or by_size, number)
        for epoch in range(self.config.epochs):
            generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
            # A single step sums over all rows, so that an order would change the rounding and nothing else.
            order = torch.randperm(number, generator=generator) if steps > 1 else torch.arange(number)
            # `chunk` makes equal chunks and may make fewer; `tensor_split` makes exactly as many as asked for.
            for part in order.tensor_split(steps) if self.config.steps else order.chunk(steps):
                yield torch.isin(batch.trajectory, part.to(self.device)).nonzero()[:, 0]

    def _step(self, material: _Material) -> dict[str, float]:
        """Take an optimizer step on some trajectories."""
        weights = step_weights(self.objective, material.batch)
        plan = self._plan(material.batch)
        self._clear()
        totals: dict[str, Any] = {}
        with self._ready(plan):
            # Every process takes as many parts, because sharded models gather weights together; parts that fill up the
            # number do not count.
            for index, counts in self.processes.deal(plan.parts):
                part = material.rows(index)
                loss, parts = self._loss(part, lay_out(part.batch, plan.layout), _cut(weights, index, part, counts))
                for name, value in parts.items():
                    totals[name] = totals.get(name, 0.0) + value
                # Processes average their gradients, and the loss is a sum over all of their parts.
                (loss * self.processes.size).backward()  # type: ignore[no-untyped-call]
                self.num_read += len(index)
        # Converted to floats only here: a conversion in every part would wait for the GPU each time.
        sums = self.processes.totals({name: float(value) for name, value in totals.items()})
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
        """Take the optimizer step, unless its gradient is not finite, or spikes and is to be skipped."""
        norms = {}
        for name, optimizer in self.optimizers.items():
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            norms[name] = float(whole_tensor(torch.nn.utils.clip_grad_norm_(parameters, self.config.grad_clip)))
        gradients = {f"the {name}'s gradient": norm for name, norm in norms.items()}
        bad = [name for name, value in {**losses, **gradients}.items() if not abs(value) < float("inf")]
        if bad:
            self._clear()
            raise TrainingDiverged(
                f"{', '.join(bad)} became NaN or infinite, and the step was not taken: lower the learning rate, or "
                "look at the last trees for a reward or log-probability that is not finite"
            )
        # The norm before clipping; the memory is replaced also where the step is skipped.
        judgement = self.spikes.judge(self.gradients, norms["policy"])
        self.gradients = judgement.memory
        for optimizer in () if judgement.skip else self.optimizers.values():
            optimizer.step()
        metrics = {"grad_norm": norms["policy"], "spikes": float(judgement.is_spike), "skipped": float(judgement.skip)}
        return metrics | ({"critic_grad_norm": norms["critic"]} if "critic" in norms else {})

    def check_weights(self) -> None:
        """Check that the weights are finite, and the policy's logits of some tokens; all processes have to call this.

        The last step of an update has no later step that would notice.

        Raises:
            TrainingDiverged: They are not.
        """
        parts = {
            f"the {name}'s weights": [
                own_rows(tensor) for group in optimizer.param_groups for tensor in group["params"]
            ]
            for name, optimizer in self.optimizers.items()
        }
        tokens = torch.arange(_TOKENS, device=self.device)[None] % self.model.config.vocab_size
        with torch.no_grad(), self._precision(), self.sampling():
            parts["the policy's logits"] = [self.model(input_ids=tokens).logits]
        broken = {
            name: torch.stack([~tensor.isfinite().all() for tensor in tensors]).any() for name, tensors in parts.items()
        }
        # A process may hold the only bad rows of a parameter.
        sums = self.processes.totals({name: float(value) for name, value in broken.items()})
        if bad := [name for name, count in sums.items() if count]:
            raise TrainingDiverged(
                f"after an update {' and '.join(bad)} are NaN or infinite: nothing of that update is kept; lower the "
                "learning rate"
            )

    def _clear(self) -> None:
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)


def _head_of(model: Any) -> Head:
    head = read_head(model)
    if head is None:
        raise ConfigError("the model transforms its logits in an unknown way: wanted logits=whole, got parts")
    return head


def _cut(weights: StepWeights, index: Tensor, part: _Material, counts: bool) -> StepWeights:
    """Return the weights of some rows of a step, 0 where they do not count."""
    width = part.batch.ids.shape[1]
    return StepWeights(*(None if part_of is None else part_of[index, :width] * counts for part_of in weights))  # type: ignore[arg-type]
