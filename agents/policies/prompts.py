"""Prompts: the words around an observation, and how much of the past they repeat."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tsr_gym.errors import ConfigError
from tsr_gym.tools import Tool
from tsr_gym.tree import Candidate, Node


@dataclass(frozen=True, slots=True)
class Prompt:
    """Arrangement of an episode in messages.

    Attributes:
        system: The system message, "" for none.
        turn: Makes the message of a node: its observation, and the requested form.
        forced: What every answer is made to begin with.
        think: Whether answers have a thinking part.
        stop: Text of a token that ends an answer, in addition to the model's end-of-turn token; "" for none.
        tools: What the model calls in the form of the chat template, observations after the first being messages of
            the role ``tool``; None where it writes actions.
    """

    system: str
    turn: Callable[[Node], str]
    forced: str
    think: bool
    stop: str = ""
    tools: tuple[Tool, ...] | None = None

    @property
    def later_role(self) -> str:
        """The role of the messages after the first answer."""
        return "user" if self.tools is None else "tool"


def paper_prompt(instructions: str, *, max_tokens: int = 400, **_: Any) -> Prompt:
    """Return the paper's arrangement: rules in the system message, state and budget each turn, thinking wanted.

    Args:
        instructions: The rules of the game, as `TextEnv.instructions` gives them.
        max_tokens: The length that answers are asked to keep; a hint to the model.
    """
    form = "<think> [your reasoning] </think> <answer> [your actions] </answer>"

    def turn(node: Node) -> str:
        lines = [] if node.parent is None else [f"Reward:\n{node.reward:g}\n"]
        lines += [f"Turn {node.depth + 1}:", "State:", str(node.observation)]
        if (left := node.info.get("actions_left")) is not None:
            lines.append(f"You have {left} actions left.")
        lines.append(f"Always answer in the form {form} and write nothing else. Use at most {max_tokens} tokens.")
        return "\n".join(lines)

    return Prompt(f"You are a helpful assistant.\n{instructions}".strip(), turn, "<think>", think=True)


def compact_prompt(instructions: str = "", **_: Any) -> Prompt:
    """Return the shortest arrangement, for very small models: the observation and the budget, no words, no thinking.

    Args:
        instructions: Not used: a model of this size learns the rules by imitation.
    """

    def turn(node: Node) -> str:
        left = node.info.get("actions_left")
        return f"{node.observation}\nturn {node.depth + 1}" + ("" if left is None else f" left {left}")

    return Prompt("", turn, "<answer>", think=False, stop="</answer>")


def plain_prompt(instructions: str, **_: Any) -> Prompt:
    """Return the arrangement for environments that define a protocol: instructions, then observations as they are.

    Args:
        instructions: The protocol in words, tags included.
    """
    return Prompt(instructions, lambda node: str(node.observation), "", think=False)


def words_prompt(instructions: str = "", *, reads_tags: bool = False, **_: Any) -> Prompt:
    """Return the shortest arrangement in words, for models whose tokens are words with the blank before them.

    Args:
        instructions: Not used: a model of this size learns the rules by imitation.
        reads_tags: Whether the environment defines a protocol, so that answers begin and end with its tags.
    """

    def turn(node: Node) -> str:
        return f"{' '.join(str(node.observation).split())} turn {node.depth + 1}"

    forced, stop = ("", "") if reads_tags else (" <answer>", " </answer>")
    return Prompt("", turn, forced, think=False, stop=stop)


def tools_prompt(instructions: str, *, tools: Sequence[Tool] = (), **_: Any) -> Prompt:
    """Return the arrangement for models that call tools: rules in the system message, observations as they are.

    Args:
        instructions: The rules of the game.
        tools: The tools of the world, which the chat template shows.
    """

    def turn(node: Node) -> str:
        reason, text = node.info.get("invalid_reason", ""), str(node.observation)
        # A world shows its own errors; those of a call's form are known only here.
        return f"Error: {reason}\n{text}" if node.parent is not None and reason and reason not in text else text

    system = f"{instructions}\nCall exactly one tool in every turn.".strip()
    return Prompt(system, turn, "", think=False, tools=tuple(tools))


PROMPTS: dict[str, Callable[..., Prompt]] = {
    "paper": paper_prompt,
    "compact": compact_prompt,
    "plain": plain_prompt,
    "words": words_prompt,
    "tools": tools_prompt,
}


def choose_prompt(
    name: str,
    instructions: str,
    *,
    preferred: str = "paper",
    max_tokens: int = 400,
    reads_tags: bool = False,
    tools: Sequence[Tool] = (),
) -> Prompt:
    """Return the prompt of a name.

    Args:
        name: One of `PROMPTS`, or ``"auto"`` for the model's own.
        instructions: The rules of the game, as `TextEnv.instructions` gives them.
        preferred: The model's own prompt. In an environment that reads tags itself it is ``"plain"``, because the other
            prompts write tags themselves, unless the prompt was made for words.
        max_tokens: The length that answers are asked to keep.
        reads_tags: Whether the environment defines a protocol (`TextEnv.reads_tags`).
        tools: Of the environment (`TextEnv.tools`).

    Raises:
        ConfigError: There is no such prompt.
    """
    own = "plain" if reads_tags and preferred != "words" else preferred
    name = own if name == "auto" else name
    if name not in PROMPTS:
        raise ConfigError(f"wanted a prompt of {sorted(PROMPTS)}, got {name!r}")
    return PROMPTS[name](instructions, max_tokens=max_tokens, reads_tags=reads_tags, tools=tools)


def messages_for(
    prompt: Prompt,
    observation: Any,
    info: Mapping[str, Any],
    *,
    reward: float = 0.0,
    past: Sequence[Mapping[str, str]] = (),
) -> list[dict[str, str]]:
    r"""Return the chat messages for an observation of an environment, without a tree.

    Args:
        prompt: The words around observations; the answer is to begin with its `forced`.
        observation: What `reset` or `step` returned.
        info: What it returned with it.
        reward: Of the turn before.
        past: The messages before with the answers to them, ``{"role": "assistant", "content": ...}``; () at the start.

    >>> prompt = compact_prompt()
    >>> first = messages_for(prompt, "P_G", {"actions_left": 5})
    >>> first
    [{'role': 'user', 'content': 'P_G\nturn 1 left 5'}]
    >>> answer = {"role": "assistant", "content": "<answer>Right</answer>"}
    >>> messages_for(prompt, "_PG", {"actions_left": 4}, past=[*first, answer])[-1]["content"]
    '_PG\nturn 2 left 4'
    """
    turn = sum(message["role"] == "assistant" for message in past)
    parent = turn - 1 if turn else None
    node = Node(parent, turn, Candidate(""), observation, reward, reward, False, False, info, None)
    system = [{"role": "system", "content": prompt.system}] if prompt.system and not past else []
    return [*map(dict, past), *system, {"role": prompt.later_role if turn else "user", "content": prompt.turn(node)}]


@dataclass(frozen=True, slots=True)
class History:
    """The part of an episode that a prompt repeats.

    Attributes:
        turns: Turns before the current one, None for all of them: each prompt then extends the one before, so that
            prefixes are shared and an episode is one training row. With a number, each turn is a separate row.
        thoughts: Whether earlier answers are shown as they were sampled. Without thoughts, a prompt is what the chat
            template makes of the whole episode, and each turn is a separate row.
    """

    turns: int | None
    thoughts: bool = True

    @property
    def grows(self) -> bool:
        """Whether each prompt extends the one before it and its answer."""
        return self.turns is None and self.thoughts

    def first(self, depth: int) -> int:
        """Return the depth of the first turn that the prompt of a node at `depth` shows.

        >>> History(None).first(7), History(0).first(7), History(2).first(7)
        (0, 7, 5)
        """
        return 0 if self.turns is None else max(0, depth - self.turns)

    @classmethod
    def parse(cls, text: str) -> "History":
        """Return the history that ``full``, ``without_thoughts``, ``markov`` or ``window(k)`` names.

        Raises:
            ConfigError: The text is none of these.
        """
        if text == "full":
            return cls(None)
        if text == "without_thoughts":
            return cls(None, thoughts=False)
        if text == "markov":
            return cls(0)
        number = text.removeprefix("window(").removesuffix(")")
        if text == f"window({number})" and number.isdecimal():
            return cls(int(number))
        raise ConfigError(f"wanted a history of full, without_thoughts, markov or window(k), got {text!r}")
