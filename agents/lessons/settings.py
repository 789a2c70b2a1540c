"""Settings of which groups are learned from, and of their credit; torch-free."""

from dataclasses import dataclass
from typing import Literal

from tsr_gym.keywords import parse_call
from tsr_gym.sections import check_choices


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonConfig:
    """Which groups are learned from, and whose credit their rewards are."""

    filter: str = "uncertainty"
    """Which groups are learned from, with the filter's numbers: uncertainty(ratio=0.25) (those whose returns vary most;
    paper), mixed_success(ratio=1.0) (with successes and failures), top_p(p=0.9) (that hold a share of all variation;
    RAGEN-2), varied, none (all), learnable (TSPO's gate with the rules of `credit`), or another filter of
    tsr_gym.agents.lessons.filters, as in keep_concise(keep=4)."""
    filter_when: Literal["after", "before"] = "after"
    """Filter by the selected trajectories (released code), or before selection by all episodes of the searches."""
    credit: tuple[str, ...] = ()
    """Rules that write rewards or counts anew before advantages are taken, in order, such as
    format_penalty(penalty=0.2); see tsr_gym.agents.lessons.credit."""

    def __post_init__(self) -> None:
        check_choices(self)
        for call in (self.filter, *self.credit):
            parse_call(call, what="filter or credit rule")
