"""The golden transcripts, played again on the environment with the original's rules."""

import json
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym_envs.webshop.catalogue.original_random import generator_of


class Played(NamedTuple):
    """A step of a transcript and what the environment made of it; there is no reward after a reset."""

    row: dict[str, Any]
    wanted: dict[str, Any]
    env: Any
    observation: str
    reward: float | None
    terminated: bool | None
    info: dict[str, Any]

    @property
    def where(self):
        return self.row["id"], self.row["kind"], self.wanted["action"]


def recorded_nouns(rows, catalogue):
    """Return the nouns of every title that was compared, as the original's stand-in for spaCy tagged it."""
    nouns = {}
    for row in rows:
        for step in row["steps"]:
            if "goal_nouns" in step:
                bought = catalogue.product(catalogue.row_of(step["url"].split("/")[5])).title
                for title, found in ((row["goal"]["name"], step["goal_nouns"]), (bought, step["product_nouns"])):
                    assert nouns.setdefault(title, found) == found
    return nouns


def play_transcripts(golden, catalogue):
    """Yield every step of every golden transcript."""
    rows = golden("webshop/transcripts.jsonl")
    noun_fn = recorded_nouns(rows, catalogue).__getitem__
    for row in rows:
        settings = {"catalogue": str(catalogue.path), "rules": "original", "noun_fn": noun_fn, **row["env_kwargs"]}
        env = gym.make("tsr/WebShop-v0", **settings)
        if row["kind"] == "string_digit_session":
            # Its goal is the second that the constructor's random numbers give: another key had come before.
            env.reset(options={"session": "before"})
        yield Played(row, row["steps"][0], env.unwrapped, *begin(env, row))
        for step in row["steps"][1:]:
            if step.get("note", "").startswith("random.seed(99)"):
                reseed(env.unwrapped, 99)
            observation, reward, terminated, truncated, info = env.step(step["action"])
            assert not truncated
            yield Played(row, step, env.unwrapped, observation, reward, terminated, info)


def begin(env, row):
    observation, info = env.reset(options={"session": row["session_arg"]})
    assert env.unwrapped.goals[env.unwrapped.state.goal] == row["goal"] | {"weight": row["goal"]["weight"]}
    return observation, None, None, info


def reseed(env, seed):
    """Put the original's generator where `random.seed` puts it."""
    state = env.state._replace(dice=generator_of(seed).getstate())
    env._episode = env.episode._replace(state=state)


def canonical(value):
    """Return a value in a form that shows the difference between 1, 1.0 and True."""
    return json.dumps(value, sort_keys=True)
