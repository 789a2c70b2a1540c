"""The scores of single worlds: TSR's proxies, and guides that know more."""

from functools import partial
from typing import Any, Literal, get_args

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.wrappers.score_wrapper import ScoreWrapper
from tsr_gym_envs.countdown.rules import CountdownState, closeness
from tsr_gym_envs.database.env import DatabaseState, stated_share
from tsr_gym_envs.frozen_lake.rules import FrozenLakeState, proximity
from tsr_gym_envs.retrieval_qa.state import (
    RetrievalState,
    answer_promise,
    first_occurrence,
    search_promise,
    supporting_coverage,
)
from tsr_gym_envs.shell.settings import ShellState, stated_progress
from tsr_gym_envs.sokoban.rules import SokobanState
from tsr_gym_envs.sokoban.score import POTENTIALS
from tsr_gym_envs.textworld.state import TextWorldState
from tsr_gym_envs.webshop.state import ShopState


class FrozenLakeScore(ScoreWrapper[FrozenLakeState]):
    """Score the state that a turn reached: minus its distance to the goal, minus a penalty in a hole (TSR Eq. 14).

    Args:
        env: A FrozenLake environment, under any wrappers.
        hole_penalty: The equation's lambda. The paper's value is not known; the default makes any hole worse than any
            cell of a 4x4 lake.
    """

    score_of = "state"

    def __init__(self, env: gym.Env[Any, Any], hole_penalty: float = 10.0) -> None:
        super().__init__(env, hole_penalty=hole_penalty)
        self.hole_penalty = hole_penalty

    def score(self, before: FrozenLakeState, action: str, after: FrozenLakeState, reward: float) -> float:
        """Return Eq. 14 of the state after the turn."""
        return proximity(after, hole_penalty=self.hole_penalty)


class SokobanScore(ScoreWrapper[SokobanState]):
    """Score a turn by its reward, as the paper does, or by its reward plus the gain of a potential.

    The reward alone ties on most turns of Sokoban (92 % at four random candidates), because nothing is paid between
    the first push and the goal. A potential breaks the ties: minus the moves that are left, and a large loss where the
    position can no longer be solved.

    Args:
        env: A Sokoban environment, under any wrappers.
        potential: ``None`` for the reward alone; ``"estimate"`` for a lower bound from box-to-goal matching and dead
            squares, which any player could work out; ``"next_push"`` for an estimate from the walk to where the next
            push begins and the pushes from there, as public; ``"oracle"`` for the exact distance from a solver, which
            knows the answer: results that use it must report it.
        weight: What one move of potential is worth in reward.
    """

    score_of = "turn"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        potential: Literal["estimate", "next_push", "oracle"] | None = None,
        weight: float = 1.0,
    ) -> None:
        if potential is not None and potential not in POTENTIALS:
            raise ConfigError(f"wanted potential None or of {sorted(POTENTIALS)}, got {potential!r}")
        super().__init__(env, potential=potential, weight=weight)
        self.potential = potential
        self.weight = weight

    def score(self, before: SokobanState, action: str, after: SokobanState, reward: float) -> float:
        """Return the reward, plus the weighted gain of the potential."""
        if self.potential is None or before is after:
            return reward
        rate = POTENTIALS[self.potential]
        return reward + self.weight * (rate(after) - rate(before))

    def rate_state(self, state: SokobanState) -> float:
        """Return the weighted potential of a state, so that it can guide other scores.

        Raises:
            ConfigError: The score has no potential.
        """
        if self.potential is None:
            raise ConfigError("wanted a SokobanScore with a potential to rate states, got one of the reward alone")
        return self.weight * POTENTIALS[self.potential](state)


# Default weights of progress.
ALPHAS = {"attributes": 0.1, "paper": 0.5}


class WebShopScore(ScoreWrapper[ShopState]):
    """Score the state that a turn reached: ``alpha * progress + beta * similarity`` (TSR Eq. 15).

    Progress is the share of three milestones: a product's page is reached, all of its options are chosen, it is bought.
    Similarity is, as in the paper, the share of the instruction's words that stand on the page; or an estimate of the
    reward from what the instruction asks for. Neither knows the goal behind the instruction, nor texts that no page of
    the observation mode shows. The more progress weighs, the sooner anything is bought: with turns to spare, a large
    `alpha` prefers a hasty purchase to a better one later.

    Args:
        env: A WebShop environment, under any wrappers.
        alpha: Weight of progress. The paper's weights are not known; None stands for 0.5 (``"paper"``) or 0.1
            (``"attributes"``), which guided well in benchmarks/webshop_players.py.
        beta: Weight of similarity.
        variant: ``"paper"`` (`tsr_gym_envs.webshop.score.overlap`) or ``"attributes"`` (`fit`).

    Raises:
        ConfigError: There is no such variant, or the observation mode shows no words of pages.
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
        from tsr_gym_envs.webshop import compact, score

        mode = env.get_wrapper_attr("settings").observation_mode
        if mode == "url":
            raise ConfigError(
                "WebShopScore rates the words of pages, and observation_mode='url' shows only their addresses: choose "
                "another mode, or the score reward"
            )
        self._progress = score.progress
        # Compact pages show few words of a product and no sub pages; a guide must not know more.
        overlap = compact.shown_overlap if mode == "compact" else score.overlap
        self._similarity = overlap if variant == "paper" else partial(score.fit, opens=mode != "compact")

    def score(self, before: ShopState, action: str, after: ShopState, reward: float) -> float:
        """Return Eq. 15 of the state after the turn."""
        shop = self.env.get_wrapper_attr("shop")
        return self.alpha * self._progress(shop, after) + self.beta * self._similarity(shop, after)


EvidenceScore = Literal["first_occurrence", "supporting", "novelty"]


class RetrievalQAScore(ScoreWrapper[RetrievalState]):
    """Score a turn of retrieval QA.

    | kind | rates | uses labels | score |
    |---|---|---|---|
    | ``first_occurrence`` | the state | golden answers | `alpha` once a golden answer was shown, 0 before |
    | ``supporting`` | the state | ids of supporting passages | the share of them that was shown |
    | ``novelty`` | the turn | none | new passages that speak of the question, found by words that were read |

    Once the episode is over, the kinds that rate the state give 1 for a right answer and 0 otherwise, so a search that
    is guided by them has seen the labels: for training, and as a ceiling. Results that use them must report it.

    Args:
        env: A retrieval QA environment, under any wrappers.
        kind: Which score.
        alpha: What evidence is worth where the answer is 1, for ``first_occurrence``. The paper's value is not known.

    Raises:
        ConfigError: There is no such kind, or the environment is another one.
    """

    def __init__(self, env: gym.Env[Any, Any], kind: EvidenceScore = "first_occurrence", alpha: float = 0.5) -> None:
        if kind not in get_args(EvidenceScore):
            raise ConfigError(f"wanted kind of {list(get_args(EvidenceScore))}, got {kind!r}")
        # Imported here, so that this module can be imported without the libraries of the environment.
        from tsr_gym_envs.retrieval_qa.env import RetrievalQAEnv

        if not isinstance(env.unwrapped, RetrievalQAEnv):
            raise ConfigError(f"wanted a RetrievalQAEnv under the wrappers, got a {type(env.unwrapped).__name__}")
        super().__init__(env, kind=kind, alpha=alpha)
        self.score_of = "turn" if kind == "novelty" else "state"
        self.kind = kind
        self.alpha = alpha
        self._base: RetrievalQAEnv = env.unwrapped

    def score(self, before: RetrievalState, action: str, after: RetrievalState, reward: float) -> float:
        """Return the score of the kind that was chosen."""
        if self.kind == "novelty":
            return self._novelty(before, after)
        if after.answer is not None or len(after.turns) == self._base.limits.max_turns:
            return float(self._base.is_success(after))
        if self.kind == "supporting":
            return supporting_coverage(after, self._base.question(after).supporting)
        return first_occurrence(after, alpha=self.alpha)

    def _novelty(self, before: RetrievalState, after: RetrievalState) -> float:
        turn, find = after.turns[-1], self._base.searches.find
        question = self._base.question(after).question
        read = [text for past in before.turns if past.kind == "search" for text in find(past.queries).documents]
        if turn.kind == "answer":
            return answer_promise(question, after.answer or "", read)
        if turn.kind != "search":
            return 0.0
        results = find(turn.queries)
        seen = {name for past in before.turns for name in past.passages}
        new = [text for name, text in zip(results.ids, results.documents, strict=True) if name not in seen]
        return search_promise(question, turn.queries, new, read)


class CountdownScore(ScoreWrapper[CountdownState]):
    """Score the state that a turn reached: 1 on the target, else minus the share by which it is missed.

    The numbers that are left, and the results of their combinations, are compared with the target: arithmetic on what
    is shown, one turn ahead.

    Args:
        env: A Countdown environment, under any wrappers.
    """

    score_of = "state"

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._use_all = bool(env.get_wrapper_attr("settings").use_all)

    def score(self, before: CountdownState, action: str, after: CountdownState, reward: float) -> float:
        """Return the closeness of the state after the turn."""
        return closeness(after.numbers, after.target, self._use_all)


QUEST_SCORES = ("quests", "points")
# Worse than any place in a game that can still be won.
LOST = -1.0


class TextWorldScore(ScoreWrapper[TextWorldState]):
    """Score the state that a turn reached: progress of the quests, or the points; less than both where it is lost.

    Progress is the mean over the quests of the share of their conditions that hold, 1 for those that were completed.
    Conditions are facts of TextWorld's logic, such as "the carrot is sliced". They are the answer, which no player is
    shown: results that use them must report it. The public guide is the points.

    Args:
        env: A TextWorld environment, under any wrappers.
        kind: ``"quests"``, or ``"points"`` for the points that the game itself reports, as public.
    """

    score_of = "state"

    def __init__(self, env: gym.Env[Any, Any], kind: Literal["quests", "points"] = "quests") -> None:
        if kind not in QUEST_SCORES:
            raise ConfigError(f"wanted kind of {sorted(QUEST_SCORES)}, got {kind!r}")
        super().__init__(env, kind=kind)
        self.kind = kind

    def score(self, before: TextWorldState, action: str, after: TextWorldState, reward: float) -> float:
        """Return the progress of the quests after the turn."""
        scene = after.scene
        if scene.ended == "lost":
            return LOST
        return scene.progress if self.kind == "quests" else float(scene.points)


class DatabaseScore(ScoreWrapper[DatabaseState]):
    """Score the state that a turn reached: the share of the stated conditions that the database fulfils.

    A request counts in part while its rows are looked up; a state that breaks a rule or changes a stray row has -1.
    The conditions are read from the request, the rules and the database, never from the hidden final state.

    Args:
        env: A database environment, under any wrappers.
    """

    score_of = "state"

    def score(self, before: DatabaseState, action: str, after: DatabaseState, reward: float) -> float:
        """Return the share of the stated conditions after the turn."""
        task = self.env.get_wrapper_attr("task")(after)
        return stated_share(task, after.changes, after.shown, after.broken)


class ShellScore(ScoreWrapper[ShellState]):
    """Score the state that a turn reached: the share of the conditions in the task's words that are met.

    Every condition follows from the task and from the files at its beginning, which an agent can read. That all other
    files are as they were is one of them. The checker may know more: it runs a repaired script on other arguments, too.

    Args:
        env: A shell environment, under any wrappers.
    """

    score_of = "state"

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)

    def score(self, before: ShellState, action: str, after: ShellState, reward: float) -> float:
        """Return the share of the stated conditions after the turn."""
        return stated_progress(after)
