"""TextEnv: a StateEnv whose observations and actions are text, with one or more actions in a turn."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from gymnasium.error import InvalidAction

from tsr_gym.spaces import FreeText
from tsr_gym.state_env import NO_NOISE, Episode, Limits, StateEnv, StateT, new_tuple
from tsr_gym.teaching import Teaching, taught_by_oracle
from tsr_gym.tools import Tool, write_call

MAX_TEXT = 100_000


def no_text(action: object) -> InvalidAction:
    """Return the error for an action that is not text: a mistake of the program, not of the agent."""
    return InvalidAction(f"wanted an action as text, got {action!r:.80}; numbers are for action_type='discrete'")


def split_turn(text: str, separator: str | None) -> tuple[str, ...]:
    """Return the actions in a turn's text, in order; without a separator, the whole text is one action.

    >>> split_turn(" Up ||  Right|| ", "||")
    ('Up', 'Right')
    """
    return _split_short(text, separator) if len(text) <= _SHORT else _split(text, separator)


def _split(text: str, separator: str | None) -> tuple[str, ...]:
    if separator is None:
        return (text,) if text.strip() else ()
    return tuple(part for part in map(str.strip, text.split(separator)) if part)


# Agents repeat their turns, so short ones are cached.
_SHORT = 200
_split_short = lru_cache(maxsize=4096)(_split)


_NOTHING_DONE = {"action_is_valid": True, "action_is_effective": False, "executed": (), "invalid_reason": ""}


class Guide(NamedTuple):
    """The public scorer of a world: it measures progress and does not know the answer.

    Attributes:
        scorer: Its class, as ``"package.module:Class"``.
        numbers: The keyword arguments that differ from the class's defaults.
    """

    scorer: str
    numbers: Mapping[str, Any] = MappingProxyType({})


class TextEnv(StateEnv[StateT, str, str]):
    """An environment whose actions and observations are text, with several actions in one turn where it allows them.

    The author's `transition` takes one action as text, such as ``"Up"``. An action that means nothing returns the
    state unchanged with ``info["action_is_valid"] = False``: it is dropped, costs no action, and the rest of the turn
    is executed. A turn without any valid action still counts as a turn.

    Every `info`, that of `reset` too, holds:

    - ``action_is_valid``: every action of the turn was understood, and there was at least one;
    - ``invalid_reason``: why the first invalid action has no meaning, "" if none is; `transition` may set it;
    - ``action_is_effective``: the turn changed the state;
    - ``executed``: the actions that were executed, a tuple of str;
    - ``success``: the task was solved;
    - ``turns_left``, ``actions_left``: the turns and actions left under the limits; None without a limit.

    Args:
        rules: Immutable configuration that the rules depend on.
        limits: Turns, actions per turn and actions per episode.
        separator: The text between the actions of a turn; None if the whole text, blanks included, is one action.
        render_mode: ``"ansi"`` or None.

    Attributes:
        actions: Names that `transition` understands in every state, or () if they depend on the state.
        instructions: The rules of the game in a few sentences, for an agent that reads.
        reads_tags: Whether `step` takes the model's text with its tags, for environments whose published protocol has
            special tags. Such an environment needs no `AnswerFormat`, and `transition` gets blank texts, too.
        tools: What a language model may call instead of writing actions; () if the world has no tools.
        continues_after_end: Whether `step` may follow a turn that terminated the episode, as in the original WebShop.
        guide: The scorer that a search uses by default; None if the world has none.
        model_forms: The settings that change only the form in which a model reads the states.
    """

    actions: tuple[str, ...] = ()
    instructions: str = ""
    reads_tags: bool = False
    tools: tuple[Tool, ...] = ()
    continues_after_end: bool = False
    guide: ClassVar[Guide | None] = None
    model_forms: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        rules: Any = None,
        *,
        limits: Limits | None = None,
        separator: str | None = "||",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(rules, limits=limits, render_mode=render_mode)
        self.separator = separator
        # Most environments report nothing but the success, which `step` then writes without two further calls.
        self._has_facts = type(self)._facts is not TextEnv._facts
        self.observation_space = FreeText(MAX_TEXT)
        self.action_space = FreeText(
            MAX_TEXT,
            words=self.actions,
            separator=f" {separator} " if separator else " ",
            max_words=(self.limits.max_actions_per_turn or 1) if separator else 1,
        )

    def is_success(self, state: StateT) -> bool:
        """Return whether the task is solved in a state."""
        raise NotImplementedError

    def legal_actions(self, state: StateT) -> tuple[str, ...]:
        """Return the single actions that are valid in a state; uniform random play draws from them."""
        return self.actions

    def tool_action(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the action that a call of a tool stands for; by default its text, ``name(key="value")``.

        Args:
            name: Of one of `tools`.
            arguments: Values of JSON's types that fit the tool's schema: wrong calls are not given to this method.
        """
        return write_call(name, arguments)

    def buttons(self, state: StateT) -> tuple[str, ...]:
        """Return the labels that a person can click in a state, in small letters; () if actions are typed."""
        return ()

    @classmethod
    def people_settings(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings under which people read the same states: those without `model_forms`."""
        return {name: value for name, value in settings.items() if name not in cls.model_forms}

    def optimal_turn(self, state: StateT, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the text of a best next turn; None if the environment has no oracle.

        A best turn has the highest probability of success within the turns and actions left. Used for demonstrations
        and as the optimal bar in results, never by a search.
        """
        return None

    def dead_end(self, state: StateT) -> str | None:
        """Return why the task can no longer be solved from a state; None if it can be, or if that is unknown.

        Limits are ignored. The reason is a proof from the rules, never a guess. For people who play, for statistics,
        and for a search under `tsr_gym.wrappers.DeadEnds`, whose results must state it.
        """
        return None

    def best_value(self, state: StateT, turns_left: int | None, actions_left: int | None) -> float | None:
        """Return the highest probability of success from a state within the turns and actions left; None if unknown.

        It is that of the best possible play: 1 or 0 without randomness, and 1 in a state of success. For reports on
        scores and searches, never for a search.
        """
        return None

    def form(self, state: StateT) -> bytes | None:
        """Return bytes that instances share if they are equal up to symmetry; None if no instances are compared.

        For environments without randomness; the argument is the first state of an episode.
        """
        return None

    def success_bars(self, state: StateT) -> tuple[float, float] | None:
        """Return the exact success probability of uniform random play and of the best policy, or None if unknown.

        Both are from the start of an episode, under the environment's limits.
        """
        return None

    def teaching(self) -> Teaching | None:
        """Return how a small language model is taught to play; None if it cannot be.

        By default it imitates the environment's oracle, if there is one.
        """
        has_oracle = type(self).optimal_turn is not TextEnv.optimal_turn
        return taught_by_oracle() if has_oracle else None

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one turn.

        Raises:
            ResetNeeded: `reset` was not called yet.
            EpisodeOver: The episode has ended.
            InvalidAction: The action is not text.
        """
        # In one function on purpose: calls of smaller ones would take half of the time.
        if self._episode is None:
            self._refuse()
        start, turns, actions, terminated, truncated = self._episode
        if truncated or (terminated and not self.continues_after_end):
            self._refuse()
        if not isinstance(action, str):
            raise no_text(action)
        rng = self._stream.draw() if self.draws_noise else NO_NOISE
        limits = self.limits
        max_actions, state, reward = limits.max_actions, start, 0.0
        names = _split_short(action, self.separator) if len(action) <= _SHORT else _split(action, self.separator)
        if limits.max_actions_per_turn is not None:
            names = names[: limits.max_actions_per_turn]
        if not names and self.reads_tags:
            names = (action,)
        valid, terminated = bool(names), False
        executed: list[str] = []
        facts: Mapping[str, Any] = self.first_facts
        reason = "" if valid else "the turn holds no action"
        for name in names:
            if terminated or actions == max_actions:
                break
            state, gained, terminated, about = self.transition(state, name, rng)
            reward += gained
            if about and not about.get("action_is_valid", True):
                valid, reason = False, reason or about.get("invalid_reason") or f"{name[:80]!r} means nothing here"
            elif not about or about.get("action_is_executed", True):
                actions += 1
                executed.append(name)
                facts = about
        turns += 1
        turns_left = None if limits.max_turns is None else limits.max_turns - turns
        actions_left = None if max_actions is None else max_actions - actions
        truncated = not terminated and (turns_left == 0 or actions_left == 0)
        info = {
            "turns_left": turns_left,
            "actions_left": actions_left,
            "success": self.is_success(state),
            "action_is_valid": valid,
            "action_is_effective": state is not start and state != start,
            "executed": tuple(executed),
            "invalid_reason": reason,
        }
        info = {**facts, **info} if facts else info
        if self._has_facts:
            info.update(self._facts(state))
        observation = self.observe(state)
        self._is_new = self._is_new or turns > self._inspected
        # Assigned last, so that an exception in the author's functions leaves the episode unchanged.
        self._episode = new_tuple(Episode, (state, turns, actions, terminated, truncated))
        return observation, reward, terminated, truncated, info

    def _left(self, turns: int, actions: int) -> dict[str, Any]:
        limits = self.limits
        return {
            "turns_left": None if limits.max_turns is None else limits.max_turns - turns,
            "actions_left": None if limits.max_actions is None else limits.max_actions - actions,
            **_NOTHING_DONE,
        }

    def _facts(self, state: StateT) -> dict[str, Any]:
        return {"success": self.is_success(state)}
