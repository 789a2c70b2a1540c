"""WebShopScore: TSR's proxy for WebShop, and a variant that knows what an instruction asks for."""

from typing import Any, Literal

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.wrappers.score_wrapper import ScoreWrapper
from tsr_gym_envs.webshop.state import ShopState

# Default weights of progress.
ALPHAS = {"attributes": 0.1, "paper": 0.5}


class WebShopScore(ScoreWrapper[ShopState]):
    """Score the state that a turn reached: ``alpha * progress + beta * similarity`` (TSR Eq. 15).

    Progress is the share of three milestones: a product's page is reached, all of its options are chosen, it is bought.
    Similarity is, as in the paper, the share of the instruction's words that stand on the page; or an estimate of the
    reward from what the instruction asks for. Neither knows the goal behind the instruction. The more progress weighs,
    the sooner anything is bought: with turns to spare, a large `alpha` prefers a hasty purchase to a better one later.

    Args:
        env: A WebShop environment, under any wrappers.
        alpha: Weight of progress. The paper's weights are not known; None stands for 0.5 (``"paper"``) or 0.1
            (``"attributes"``), which guided well in benchmarks/webshop_players.py.
        beta: Weight of similarity.
        variant: ``"paper"`` (`tsr_gym_envs.webshop.score.overlap`) or ``"attributes"`` (`fit`).
    """

    score_of = "state"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        alpha: float | None = None,
        beta: float = 1.0,
        variant: Literal["paper", "attributes"] = "paper",
    ) -> None:
        if variant not in ALPHAS:
            raise ConfigError(f"wanted variant of {sorted(ALPHAS)}, got {variant!r}")
        super().__init__(env, alpha=alpha, beta=beta, variant=variant)
        self.alpha = ALPHAS[variant] if alpha is None else alpha
        self.beta = beta
        self.variant = variant
        # The formulas need the extra `envs`, which every importer of the wrappers would need with them.
        from tsr_gym_envs.webshop import score

        self._progress = score.progress
        self._similarity = score.overlap if variant == "paper" else score.fit

    def score(self, before: ShopState, action: str, after: ShopState, reward: float) -> float:
        """Return Eq. 15 of the state after the turn."""
        shop = self.env.get_wrapper_attr("shop")
        return self.alpha * self._progress(shop, after) + self.beta * self._similarity(shop, after)
