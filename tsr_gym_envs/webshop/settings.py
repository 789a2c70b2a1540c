"""Settings of WebShop: shop, goals, limits of an episode, and form of observations."""

from dataclasses import dataclass
from typing import Any

from tsr_gym import ConfigError
from tsr_gym_envs.settings import SPLITS, check_choices, settings_from
from tsr_gym_envs.webshop.pages import MODES
from tsr_gym_envs.webshop.repairs import RULES, Repairs, repairs_of

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # TSR (arXiv 2602.11767) states 5 turns and 10 actions for its text games, which is two actions per turn.
    "paper": {"observation_mode": "text", "max_turns": 5, "max_actions_per_turn": 2, "max_actions": 10},
    # RAGEN's config/envs.yaml, which the released code of TSR's authors uses: 9 turns of one action.
    "tsr-code": {"observation_mode": "text", "max_turns": 9},
}
# Further defaults of the original's rules.
ORIGINAL: dict[str, Any] = {"observation_mode": "text", "max_turns": None}
OBSERVATION_MODES = (*MODES, "html", "url", "compact")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebShopSettings:
    """Settings of WebShop; `WebShopEnv` documents each of them."""

    preset: str = "default"
    catalogue: str | None = None
    rules: str = "fixed"
    repairs: tuple[str, ...] | None = None
    observation_mode: str = "text_options"
    max_turns: int | None = 15
    max_actions_per_turn: int | None = 1
    max_actions: int | None = None
    human_goals: bool = False
    price_seed: int = 0
    split: str = "all"
    limit_goals: int | None = None
    min_options: int = 0
    num_products: int | None = None
    num_prev_obs: int = 0
    num_prev_actions: int = 0
    show_attrs: bool = False
    session_prefix: str = ""
    engine: str = "lucene"

    def __post_init__(self) -> None:
        check_choices(
            rules=(self.rules, RULES),
            observation_mode=(self.observation_mode, OBSERVATION_MODES),
            split=(self.split, SPLITS),
        )
        counted = ("num_prev_obs", "num_prev_actions", "min_options")
        for name, count in zip(counted, (self.num_prev_obs, self.num_prev_actions, self.min_options), strict=True):
            if count < 0:
                raise ConfigError(f"wanted {name} >= 0, got {count}")
        for name, size in (("limit_goals", self.limit_goals), ("num_products", self.num_products)):
            if size is not None and size < 1:
                raise ConfigError(f"wanted {name} >= 1 or None, got {size}")
        repairs_of(self.rules, self.repairs)
        if self.observation_mode == "compact" and self.is_original:
            raise ConfigError(
                "the original's rules cannot parse the actions of compact pages: wanted "
                "rules='fixed', or another observation_mode"
            )

    @property
    def chosen_repairs(self) -> Repairs:
        """The repaired defects of the original."""
        return repairs_of(self.rules, self.repairs)

    @property
    def is_original(self) -> bool:
        """Whether texts are read, and episodes drawn, exactly as in the original."""
        return self.rules == "original"


def make_settings(preset: str, given: dict[str, Any]) -> WebShopSettings:
    """Return the settings that preset and keywords describe; keywords override the preset, the preset the rules.

    Raises:
        ConfigError: A setting is unknown or impossible.
    """
    implied = ORIGINAL if given.get("rules") == "original" else {}
    taken = {name: value for name, value in implied.items() if name not in PRESETS.get(preset, {})}
    return settings_from(WebShopSettings, PRESETS, preset, {**taken, **given}, discrete={}, arrays=())
