"""Episodes that are left, entered by tokens and asked nonsense at random: a turn has one result, and pays once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tests.abuse.attacks import Counts, Outcome, attacked, counted, damaged
from tsr_gym import TsrGymError
from tsr_gym.agents.bridges.openenv import session_of

TURNS = tuple(f"<think></think><answer>{move}</answer>" for move in ("Left", "Down", "Right || Up", "no", ""))
NO_SEEDS, NO_TEXTS = (-1, -(2**70), 0.5, "x", [], {}), (None, 3, 0.5, [], {})
NONSENSE = {
    "reset": {"seed": NO_SEEDS},
    "enter": {"token": ("", "x", "AAAA", *NO_TEXTS), "noise": ("bad", "", *NO_TEXTS), "seed": NO_SEEDS},
}
REFUSALS = (TsrGymError, gym.error.Error, ValueError, TypeError)
Nonsense = Mapping[str, Mapping[str, Sequence[Any]]]


def token_campaign(count: int, seed: int, calls: Mapping[str, Callable[..., Any]], nonsense: Nonsense) -> Counts:
    """Return the outcomes of random calls of a session.

    Args:
        count: Number of calls.
        seed: Seed of their choice.
        calls: ``reset(seed)``, ``enter(token, noise, seed)`` and ``step(text)``, which return a result with a reward,
            and ``token()``.
        nonsense: By call and argument, values that must be refused.
    """
    return counted(_attacked_calls(count, np.random.default_rng(seed), calls, nonsense))


def _attacked_calls(
    count: int, rng: np.random.Generator, calls: Mapping[str, Callable[..., Any]], nonsense: Nonsense
) -> Iterator[Outcome]:
    calls["reset"](seed=0)
    tokens, results = [calls["token"]()], {}
    for _ in range(count):
        before, token, seed = calls["token"](), tokens[rng.integers(len(tokens))], int(rng.integers(3))
        fresh = {"noise": "fresh", "seed": seed} if rng.integers(2) else {}
        sound = {"reset": {"seed": seed}, "enter": {"token": token, **fresh}, "step": {"text": TURNS[rng.integers(5)]}}
        name = ("reset", "enter", "step", "step")[rng.integers(4)]
        given, wrong = sound[name], name in nonsense and rng.random() < 0.4
        if wrong and name == "enter" and rng.integers(2):
            given["token"] = damaged(token.encode(), rng).decode("latin-1")
        elif wrong:
            argument = list(nonsense[name])[rng.integers(len(nonsense[name]))]
            values = nonsense[name][argument]
            given[argument] = values[rng.integers(len(values))]

        def attack(name=name, given=given, wrong=wrong, before=before):
            key = before if name == "step" else "", repr(given)
            result = repr(calls[name](**given)), calls["token"]()
            tokens.append(result[1])
            stays = name != "enter" or "noise" in given or result[1] == given["token"]
            pays = "reward=None" not in result[0]
            return not wrong and stays and pays == (name == "step") and results.setdefault(key, result) == result

        yield attacked(f"{name} {given!r:.300}", attack, REFUSALS, lambda before=before: calls["token"]() == before)


def test_calls_of_a_session_have_one_result_and_nonsense_changes_nothing(hold):
    session = session_of("frozenlake", {})
    calls = {"reset": session.reset, "enter": session.enter, "step": session.step, "token": session.token}
    counts = hold("calls of sessions", lambda count, seed: token_campaign(count, seed, calls, NONSENSE), 200)
    assert counts.refused > 0 < counts.right
