"""Players that teach a small model, and the words that it reads and writes."""

from functools import lru_cache
from typing import Any

import numpy as np

from tsr_gym_envs.database.domains import DOMAINS, tools_of
from tsr_gym_envs.database.world import name_of

_MARKS = ("ask", ";", "of", "checked", "ok", "bad", "nothing", "ended", "row", "refuse", "done")


@lru_cache(maxsize=8)
def vocabulary(domains: tuple[str, ...], people: int) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the words of compact texts, and the ids and names among them, which may be exchanged."""
    words, names = {*_MARKS, *map(str, range(100))}, set()
    for name in domains:
        domain = DOMAINS[name]
        for table in domain.tables:
            words |= {table.noun, *(str(value).lower() for column in table.columns for value in column.values)}
            count = people * (1 + (table is domain.records))
            names |= {f"{table.letter.lower()}{number}" for number in range(1, count + 1)}
        for tool in tools_of(domain).values():
            words |= {*tool.words, *(str(value).lower() for param in tool.params for value in param.values)}
            words |= {str(tool.value).lower()} - {"none"}
    names |= {word for number in range(max(40, people)) for word in name_of(number).split()}
    return tuple(sorted(words | names)), frozenset(names - words)


def teacher_turn(env: Any, rng: np.random.Generator) -> str:
    """Return the next call of the plan; the end if the task is lost."""
    turn = env.optimal_turn(env.state, None, None)
    return str(turn) if turn else "done" if env.settings.observation_mode == "compact" else "done()"


def poor_turn(env: Any, rng: np.random.Generator) -> str:
    """Return a plausible call, drawn uniformly."""
    names = env.legal_actions(env.state)
    return str(names[rng.integers(len(names))])
