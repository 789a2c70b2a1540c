"""Schedule: what the share of a run that is done decides: whether it still searches, and how fast it learns."""

from collections.abc import Sequence

from tsr_gym.agents.episodes.collect import ChosenSearch
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.runs.checkpoint import Progress
from tsr_gym.agents.runs.config import RunConfig
from tsr_gym.agents.runs.token_budget import counted


def share_done(progress: Progress, run: RunConfig) -> float:
    """Return the share of a run that is done, 0 to 1: of its total tokens, or without a total of its updates."""
    done, whole = (
        (progress.update, run.updates) if run.total_tokens is None else (counted(progress, run), run.total_tokens)
    )
    return min(1.0, done / max(1, whole))


def lr_scale(share: float, learn: LearnConfig) -> float:
    """Return the share of the learning rates that is left: ``clamp((1 - share) / (1 - lr_decay_from), lr_floor, 1)``.

    >>> lr_scale(0.75, LearnConfig(lr_decay_from=0.5))
    0.5
    """
    if learn.lr_decay_from == 1:
        return 1.0
    return min(1.0, max(learn.lr_floor, (1 - share) / (1 - learn.lr_decay_from)))


def as_selected(search: ChosenSearch, config: SearchConfig, groups: Sequence[Group]) -> int | None:
    """Return how many trajectories groups of leaves would have if searches selected them; None for other groups."""
    if search.harvest != "leaves":
        return None
    return sum(min(len(group.trajectories), config.trajectories + config.naive) for group in groups)
