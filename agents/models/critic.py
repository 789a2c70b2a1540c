"""Critic: the value of a state, from a separate language model or from the policy's own hidden states."""

from typing import Any

import torch
from torch import Tensor, nn


class Critic(nn.Module):
    """A transformer with a linear value head.

    The head begins at zero, so the first values are 0 everywhere. The critic's parameters, and its `state_dict`, are
    those that its optimizer trains: backbone and head, or the head alone where the backbone is the policy's.

    Args:
        backbone: A Hugging Face model without language-model head.
        shared: Whether the backbone belongs to another model, such as the policy.
        gradient: Share of the value loss's gradient that passes from the head into the backbone: 1 for all of it, 0
            for none. A head on a policy that gets none leaves the policy to its own loss.
    """

    def __init__(self, backbone: Any, *, shared: bool = False, gradient: float = 1.0) -> None:
        super().__init__()
        self.backbone: Any
        if shared:
            # `nn.Module.__setattr__` would register the backbone, and its parameters would then be the critic's: an
            # optimizer would train them, and a checkpoint would hold them twice.
            self.__dict__["backbone"] = backbone
        else:
            self.backbone = backbone
        self.head = ValueHead(backbone.config.hidden_size, gradient).to(backbone.device)

    @classmethod
    def on(cls, model: Any, *, gradient: float = 0.0) -> "Critic":
        """Return a value head on a policy's own backbone.

        Args:
            model: The policy, a Hugging Face causal language model, with LoRA or without.
            gradient: See `Critic`. What arrives in the backbone is the policy optimizer's business, its learning rate
                and its limit on gradients included.
        """
        return cls(model.base_model, shared=True, gradient=gradient)

    def hidden(self, **inputs: Any) -> Tensor:
        """Return the backbone's last hidden states, `[B, T, H]`, without a graph where no gradient goes into it."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.head.gradient > 0):
            states: Tensor = self.backbone(**inputs).last_hidden_state
        return states

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        """Return the value of the state in which each token is sampled, `[B, T]`.

        The state is everything before the token, so the first column has none and is 0.
        """
        hidden = self.hidden(input_ids=ids, attention_mask=present.long(), use_cache=False)
        values: Tensor = self.head(hidden)[..., 0].float()
        return torch.cat([torch.zeros_like(values[:, :1]), values[:, :-1]], dim=1)


class ValueHead(nn.Linear):
    """A linear layer from hidden states to values, which begins at zero.

    Args:
        size: Of a hidden state.
        gradient: Share of the gradient that passes into the hidden states.
    """

    def __init__(self, size: int, gradient: float) -> None:
        super().__init__(size, 1)
        self.gradient = gradient
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return values, `[..., 1]`."""
        if self.gradient == 0:
            hidden = hidden.detach()
        elif self.gradient != 1 and hidden.requires_grad:
            hidden = hidden.view_as(hidden)
            hidden.register_hook(lambda gradient: self.gradient * gradient)  # type: ignore[no-untyped-call]
        return super().forward(hidden.to(self.weight.dtype))
