"""Settings of tasks and of searches; torch-free.

Numbers in parentheses name their source: TSR (arXiv 2602.11767), its released code, or the project's own choice.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tsr_gym.agents.episodes.start_states import choose_starts
from tsr_gym.agents.raters import choose_rater
from tsr_gym.agents.strategies import STRATEGIES, choose_strategy
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import Choice, bind
from tsr_gym.sections import check_choices, check_numbers, setting
from tsr_gym.stack import Noise
from tsr_gym.wrappers.scorers import choose_scorer


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """What is played."""

    preset: str = setting("paper", metavar="{paper,tsr-code,...}")
    """Settings of the environment: paper (what the paper states) or tsr-code (what its released code does); of no
    effect where an environment has no presets."""
    env_set: tuple[str, ...] = setting((), metavar="KEY=VALUE")
    """More settings of the environment as KEY=VALUE, the value in JSON, such as solution_length=[3,10]."""
    eval_env_set: tuple[str, ...] = setting((), metavar="KEY=VALUE")
    """Settings of held-out instances in addition to those of training, or in place of them."""
    score: Choice = setting("reward", metavar="CALL")
    """Guide of the search: reward, or a scorer such as FrozenLakeScore or "SokobanScore(potential='estimate')"."""
    penalty: float = 0.1
    """Price of an answer without the wanted form (paper)."""
    train_split: str | None = setting("train", metavar="{train,valid,test,all,none}")
    """Instances to train on; none for all, and of no effect where an environment has no splits."""
    eval_split: str | None = setting("test", metavar="{train,valid,test,all,none}")
    """Held-out instances, which share none with training up to symmetry."""

    def __post_init__(self) -> None:
        check_numbers(self, "penalty", least=0)
        object.__setattr__(self, "score", bind(self.score, choose_scorer))
        # One word for all instances, so that equal settings have equal files.
        object.__setattr__(self, "train_split", self.train_split or "none")
        object.__setattr__(self, "eval_split", self.eval_split or "none")

    @property
    def held_out(self) -> "TaskConfig":
        """What is played in evaluation: the same with the settings that held-out instances have."""
        return replace(self, env_set=(*self.env_set, *self.eval_env_set), eval_env_set=())

    @property
    def examined(self) -> "TaskConfig":
        """What a run's own evaluations play: held-out instances without a scorer, because nothing there searches."""
        return replace(self.held_out, score=bind("reward", choose_scorer))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """How trajectories are collected."""

    search: Choice = setting("naive", metavar="CALL")
    """Strategy with its numbers: naive, best_of_n(n=32), beam(width=2, branching=4), lookahead(branching=4, depth=2),
    puct(simulations=64) or another one of tsr_gym.agents.strategies, or package.module:name of your own."""
    groups: int = 8
    """Task instances per update, the paper's P (paper: 8)."""
    trajectories: int = 16
    """Trajectories per instance that are learned from, the paper's L, for every search (paper: 16)."""
    paths_per_search: int = 1
    """Best paths taken from one search (paper: 1, with as many searches as trajectories)."""
    learn_from: Literal["auto", "selected", "episodes", "branches", "leaves"] = "auto"
    """What is taken from a search's trees: the paths that it selected; all episodes of one tree per instance; the same,
    by branch; or the path to every leaf, as tree_backup and treerl need. auto: the strategy's default: selected for
    strategies that select, episodes for plain play."""
    noise: Noise = "fresh"
    """Dice of imagined turns; same is clairvoyant and is marked in the results."""
    repeats: int = 1
    """Draws on which an imagined turn is scored that leaves something to chance."""
    risk: float | None = None
    """Quantile of the draws' scores that counts; None for their mean."""
    dead_ends: Literal["off", "proven", "limits"] = "off"
    """What a search leaves out: nothing, what is proven lost, or also what the limits leave no room for. Proofs are not
    public: the policy does not have them, and results must report them."""
    rater: Choice | None = setting(None, metavar="CALL")
    """Scores of whole rounds in place of the scorer's, such as SelfConsistency or "CriticValue(critic='FOLDER')"; a
    bare CriticValue asks the run's own critic, which algorithm=ppo has."""
    naive: int = 0
    """Trajectories of plain play per instance in addition to the searched ones, for mixed groups."""
    search_when: Literal["always", "failed", "cheaper"] = "always"
    """Which instances are searched: all of them; only those whose plain play, the trajectories of naive, has failed
    altogether; or of these only while the run's own prices say that it pays."""
    search_temperature: float | None = None
    """Temperature of the samples of searches; None for that of plain play. A higher one finds what the policy hardly
    ever does; what is found can then be imitated only."""
    start_states: int = 0
    """Groups of each update that begin at start states, which are states in the middle of the run's own episodes; until
    there are any, at the start of their instance."""
    start_states_from: Choice = setting("states", metavar="CALL")
    """Which states: states (from which success was seen and is not certain), or package.module:Name of a class of
    yours."""
    match_tokens: Path | None = setting(None, metavar="FOLDER")
    """Another run's folder: search instances in each update until as many tokens have been counted in all as there
    after that update, so that an update makes up for what those before took too much; and end with its tokens, as
    with total_tokens."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_numbers(self, "groups", "trajectories", "paths_per_search", "repeats", least=1)
        check_numbers(self, "naive", "start_states", least=0)
        check_numbers(self, "risk", least=0, most=1)
        check_numbers(self, "search_temperature", least=0)
        object.__setattr__(self, "search", bind(self.search, choose_strategy))
        object.__setattr__(self, "start_states_from", bind(self.start_states_from, choose_starts))
        if self.rater is not None:
            object.__setattr__(self, "rater", bind(self.rater, choose_rater))
        if self.start_states > self.groups:
            raise ConfigError(f"wanted start_states <= groups={self.groups}, got {self.start_states}")
        if self.search_when != "always" and not self.naive:
            raise ConfigError(
                f"search_when={self.search_when} searches where plain play has failed: wanted naive >= 1, got 0"
            )
        if self.repeats > 1 and self.noise == "same":
            raise ConfigError(f'repeats={self.repeats} needs draws that differ: wanted noise "fresh" or "common"')

    @property
    def name(self) -> str:
        """The strategy without its numbers; one of ours by its bare name, however it was written."""
        return self.search.name.removeprefix(f"{STRATEGIES}:")
