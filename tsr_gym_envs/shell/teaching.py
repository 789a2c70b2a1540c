"""How a small model learns the shell: tasks of a few words, whose names it copies from the prompt."""

import re
from typing import Any

import numpy as np

from tsr_gym.teaching import Teaching, oracle_turn
from tsr_gym_envs.shell.families import VERBS
from tsr_gym_envs.shell.names import NAMES, WORDS

FORM = {"style": "words", "observation_mode": "compact", "depth": (1, 2), "max_turns": 4}
# Names of the small world, among which an exchange changes nothing.
_MARKS = ("task", "files", "ok", "failed", "to", "into", "then", ">", ".", "-c", "600", "ls", *map(str, range(10)))
_WORD = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]")


def spaced(text: str) -> str:
    """Return a text as words and marks with blanks between them.

    >>> spaced("rm: cannot remove 'a'")
    "rm : cannot remove ' a '"
    """
    return " ".join(_WORD.findall(text))


def shell_teaching() -> Teaching:
    """Return the teaching of the tasks of a few words."""
    words = {word for verb, form in VERBS.items() for word in (verb, *form.split()) if "{" not in word}
    return Teaching(
        teacher_turn=oracle_turn,
        poor_turn=poor_turn,
        env_settings=FORM,
        history="full",
        max_tokens=8,
        words=tuple(sorted({*words, *NAMES, *WORDS, *_MARKS})),
        permutable=frozenset(NAMES),
        permute=0.85,
        copying=True,
    )


def poor_turn(env: Any, rng: np.random.Generator) -> str:
    """Return a command of the right form whose verb and names are drawn among those of the task."""
    commands = env.legal_actions(env.state)
    return str(commands[int(rng.integers(len(commands)))])
