"""AnswerFormat: from a model's text to an action, and the penalty for malformed text."""

import re
from typing import Any

import gymnasium as gym

from tsr_gym.ranges import check_range

_TAGS = re.compile(r"</?think>|</?answer>|<\|im_start\|>|<\|im_end\|>")
_BETWEEN = re.compile(r"</think>\s*<answer>")


class AnswerFormat(gym.Wrapper[str, str, str, str], gym.utils.RecordConstructorArgs):
    """Take model text of the form ``<think>...</think><answer>...</answer>`` as actions.

    The first such pair counts; text around it is ignored. Text that does not have the form becomes the empty action,
    which costs a turn. The penalty is subtracted from a turn's reward where the form is missing, or where the
    environment reports that a part of the answer had no meaning.

    `info` gains ``action`` (what the environment was given) and ``format_penalty`` (what was subtracted), and
    ``invalid_reason`` reports a missing form.

    Args:
        env: An environment with text actions.
        penalty: Price of a malformed turn, which is subtracted; 0.1 in the paper.
        think: Whether the thinking part is required; without it ``<answer>...</answer>`` is enough.

    >>> AnswerFormat.parse("<think>the box is above</think> <answer>Up || Left</answer>")
    'Up || Left'
    """

    def __init__(self, env: gym.Env[str, str], penalty: float = 0.1, think: bool = True) -> None:
        check_range(least=0, penalty=penalty)
        gym.utils.RecordConstructorArgs.__init__(self, penalty=penalty, think=think)
        super().__init__(env)
        self.penalty = penalty
        self.think = think

    @staticmethod
    def parse(text: str, *, think: bool = True) -> str | None:
        """Return the answer in a model's text, None where it does not have the form."""
        start = text.find("<think>")
        if think:
            between = _BETWEEN.search(text, start + len("<think>")) if start >= 0 else None
            if between is None:
                return None
            begin = between.end()
        else:
            begin = text.find("<answer>") + len("<answer>")
            if begin < len("<answer>"):
                return None
        # The answer ends at the first closing tag, because models often continue with further pairs.
        end = text.find("</answer>", begin)
        answer = text[begin:end] if end >= 0 else None
        return answer if answer is None else (_TAGS.sub("", answer) if "<" in answer else answer).strip()

    def format(self, action: str, thought: str = "") -> str:
        """Return the model text that stands for an action.

        >>> AnswerFormat(gym.make("tsr_gym:tsr/Sokoban-v0")).format("Up")
        '<think></think><answer>Up</answer>'
        """
        answer = f"<answer>{action}</answer>"
        return f"<think>{thought}</think>{answer}" if self.think else answer

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take the turn that a model's text asks for."""
        parsed = self.parse(action, think=self.think)
        observation, reward, terminated, truncated, info = self.env.step(parsed or "")
        well_formed = parsed is not None and info.get("action_is_valid", True)
        penalty = 0.0 if well_formed else self.penalty
        if parsed is None:
            form = "<think>...</think><answer>...</answer>" if self.think else "<answer>...</answer>"
            info["invalid_reason"] = f"wanted {form}, with the action in the answer"
        info["action"] = parsed or ""
        info["action_is_valid"] = well_formed
        info["format_penalty"] = penalty
        return observation, float(reward) - penalty, terminated, truncated, info

    def wrapper_state(self) -> None:
        """Return None: the wrapper holds nothing of the episode."""

    def set_wrapper_state(self, state: None) -> None:
        """Do nothing: see `wrapper_state`."""
