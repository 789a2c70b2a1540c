"""How a small model learns the shell: tasks of a few words, whose names it copies from the prompt."""

import re
from typing import Any

import numpy as np

from tsr_gym.teaching import Teaching, oracle_turn, random_turn
from tsr_gym_envs.shell.families import VERBS
from tsr_gym_envs.shell.names import NAMES, WORDS
from tsr_gym_envs.shell.tasks import make_task

FORM = {"style": "words", "observation_mode": "compact", "depth": (1, 2), "max_turns": 3}
_MARKS = ("task", "files", "failed", "to", "into", "then", ">", ".", "-c", "600", "ls", *map(str, range(10)))
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
        history="markov",
        max_tokens=8,
        words=tuple(sorted({*words, *NAMES, *WORDS, *_MARKS})),
        permutable=frozenset(NAMES),
        permute=0.85,
        copying=True,
    )


# Wrong verbs of a poor player: a habit that the model's own sampling cannot mistake for the right one.
HABITS = {
    "copy": "rename", "rename": "sort", "sort": "count", "count": "copy", "remove": "protect", "protect": "remove",
}  # fmt: skip
P_HABIT = 0.9


def poor_turn(env: Any, rng: np.random.Generator) -> str:
    """Return a command of the right form: mostly a wrong verb with the names of a sentence, else any verb and names.

    In sentences, whose commands have no verbs of this kind, any legal action.
    """
    if env.settings.style != "words":
        return random_turn(env, rng)
    text = spaced(make_task(env.state.task).text)
    sentences = [sentence.split() for sentence in text.split(" then ")]
    verb, *words = sentences[int(rng.integers(len(sentences)))]
    names = [word for word in words if word in NAMES]
    if rng.random() < P_HABIT:
        return VERBS[HABITS[verb]].format(*names)
    names = [word for word in text.split() if word in NAMES]
    first, second = rng.integers(len(names), size=2)
    return list(VERBS.values())[int(rng.integers(len(VERBS)))].format(names[first], names[second])
