"""LoraSettings: how large low-rank matrices are and where they stand; torch-free, for a configuration to hold."""

from dataclasses import dataclass
from math import inf

from tsr_gym.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """Low-rank adaptation (arXiv 2106.09685): beside a frozen weight W stands ``alpha / rank * B A``, which trains.

    There is no dropout in it: a learner keeps all dropout off, so that a ratio compares the policy with itself.

    Attributes:
        rank: Columns of B and rows of A.
        alpha: The product counts ``alpha / rank`` times.
        targets: Names of layers as they end, such as ``("q_proj", "v_proj")``; ``"all-linear"`` for every linear layer
            but the output layer.
        seed: Of A, which begins random; B begins at zero.

    Raises:
        ConfigError: A number is impossible, or no layer is named.
    """

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] | str = "all-linear"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rank < 1 or not 0 < self.alpha < inf:
            raise ConfigError(f"wanted a LoRA rank >= 1 and alpha > 0, got {self.rank} and {self.alpha}")
        if not self.targets or (isinstance(self.targets, str) and self.targets != "all-linear"):
            raise ConfigError(f"wanted LoRA targets as a tuple of names, or all-linear, got {self.targets!r}")
