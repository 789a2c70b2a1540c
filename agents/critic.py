"""Critic: what a state is worth, read off a language model of the policy's kind."""

from typing import Any

import torch
from torch import Tensor, nn


class Critic(nn.Module):
    """A transformer with a linear value head.

    The head begins at zero, so the first values are 0 everywhere.

    Args:
        backbone: A Hugging Face model without language-model head.
    """

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, present: Tensor) -> Tensor:
        """Return the value of the state in which each token is said, `[B, T]`.

        The state is everything before the token, so the first column has none and is 0.
        """
        hidden = self.backbone(input_ids=ids, attention_mask=present.long(), use_cache=False).last_hidden_state
        values: Tensor = self.head(hidden)[..., 0].float()
        return torch.cat([torch.zeros_like(values[:, :1]), values[:, :-1]], dim=1)
