"""OpenEnv: environments of text as its server and client, with snapshots as tokens, which its protocol lacks.

Written for OpenEnv 0.10.0. A token is the snapshot itself, without pickle, so any server of the same environment with
the same settings can continue from it, and no server keeps a table of snapshots.
"""

import base64
import binascii
import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import gymnasium as gym

from tsr_gym.codec import encode
from tsr_gym.errors import ConfigError, SnapshotError
from tsr_gym.optional import require
from tsr_gym.records import to_json
from tsr_gym.registration import env_id
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import restore, snapshot
from tsr_gym.text_env import TextEnv
from tsr_gym.wrappers import AnswerFormat


class Seen(NamedTuple):
    """The result of a turn.

    Attributes:
        text: The observation.
        reward: Of the turn; None where no turn was taken.
        terminated: The task ended.
        truncated: A limit ended the episode.
        info: Facts about the turn, in JSON's types.
    """

    text: str
    reward: float | None
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Session:
    """An episode that can be left at a token and entered at another; without OpenEnv.

    Args:
        env: An environment of text.
    """

    def __init__(self, env: gym.Env[str, str]) -> None:
        self.env = env
        # An environment that was never reset can neither take nor restore a snapshot.
        env.reset(seed=0)

    def reset(self, seed: int | None = None) -> Seen:
        """Begin the episode of a seed."""
        text, info = self.env.reset(seed=seed)
        return Seen(text, None, False, False, _plain(info))

    def enter(self, token: str, *, noise: Literal["same", "fresh", "common"] = "same", seed: int | None = None) -> Seen:
        """Continue from a token.

        Args:
            token: A result of `token`, from this or another server.
            noise: The random numbers from now on, as in `tsr_gym.restore`.
            seed: Of fresh random numbers.

        Raises:
            SnapshotError: The token is damaged, or of another environment; the episode is unchanged.
        """
        try:
            snap = Snapshot.from_bytes(base64.b64decode(token, validate=True))
        except (ValueError, binascii.Error) as error:
            raise SnapshotError(f"wanted a token of this environment, got another text ({error})") from error
        restore(self.env, snap, noise=noise, seed=seed)
        base: Any = self.env.unwrapped
        episode = base.episode
        return Seen(base.observe(episode.state), None, episode.terminated, episode.truncated, {})

    def step(self, text: str) -> Seen:
        """Take a turn."""
        observation, reward, terminated, truncated, info = self.env.step(text)
        return Seen(observation, float(reward), terminated, truncated, _plain(info))

    def token(self) -> str:
        """Return the token of the current state."""
        return base64.b64encode(snapshot(self.env).to_bytes()).decode()


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    """Return the plain data of an info in JSON's types; other values are left out."""
    facts = {}
    for name, value in info.items():
        try:
            encode(value)
        except SnapshotError:
            continue
        facts[name] = json.loads(to_json(value))
    return facts


def session_of(env: str, settings: dict[str, Any]) -> Session:
    """Return a session of an environment of text; turns have the form in which this package's models answer.

    Raises:
        ConfigError: The environment is not made of text.
    """
    made: gym.Env[str, str] = gym.make(env_id(env), **settings)
    base = made.unwrapped
    if not isinstance(base, TextEnv):
        raise ConfigError(f"wanted an environment of text (a tsr_gym.TextEnv), {env} is a {type(base).__name__}")
    return Session(made if base.reads_tags else AnswerFormat(made))


class OpenEnvKinds(NamedTuple):
    """OpenEnv's classes for environments of text.

    Attributes:
        action: A turn: its `text`, `enter` (a token to restore first), `noise` and `seed` (of the random numbers from
            there on), and `keep` (whether the answer holds a token).
        observation: `text`, `terminated`, `truncated`, and `token` where it was requested; `metadata` is the info.
        state: OpenEnv's state of an episode, and its `token`.
        environment: OpenEnv's `Environment` over a `Session`.
        client: OpenEnv's typed client.
    """

    action: type[Any]
    observation: type[Any]
    state: type[Any]
    environment: type[Any]
    client: type[Any]


@cache
def _messages() -> tuple[type[Any], type[Any], type[Any], type[Any]]:
    """Return the classes of actions, observations and states, and that of what a reset is asked for."""
    from openenv.core.env_server import Action, Observation, State

    # Unknown fields are refused, and words for numbers are read, as in every action of OpenEnv.
    class TsrReset(Action):  # type: ignore[misc, unused-ignore]
        enter: str | None = None
        noise: Literal["same", "fresh", "common"] = "same"
        seed: int | None = None
        keep: bool = False

    class TsrAction(TsrReset):
        text: str

    class TsrObservation(Observation):  # type: ignore[misc, unused-ignore]
        text: str
        terminated: bool = False
        truncated: bool = False
        token: str | None = None

    class TsrState(State):  # type: ignore[misc, unused-ignore]
        token: str

    return TsrAction, TsrObservation, TsrState, TsrReset


@cache
def _client() -> type[Any]:
    """Return the class of clients."""
    from openenv.core import EnvClient
    from openenv.core.client_types import StepResult

    action, observation, state, _ = _messages()

    class TsrClient(EnvClient[action, observation, state]):  # type: ignore[misc, valid-type, unused-ignore]
        def _step_payload(self, action: Any) -> dict[str, Any]:
            payload: dict[str, Any] = action.model_dump()
            return payload

        def _parse_result(self, payload: dict[str, Any]) -> Any:
            reward, done = payload.get("reward"), bool(payload.get("done", False))
            seen = observation(**{**payload["observation"], "reward": reward, "done": done})
            return StepResult(observation=seen, reward=reward, done=done, metadata=payload.get("metadata"))

        def _parse_state(self, payload: dict[str, Any]) -> Any:
            return state(**payload)

    return TsrClient


@cache
def openenv_kinds() -> OpenEnvKinds:
    """Return the classes, which are made at the first call.

    Raises:
        MissingExtra: OpenEnv is not installed.
    """
    require("openenv", "openenv")
    from openenv.core.env_server import Environment

    action, observation, state, options = _messages()

    class TsrEnvironment(Environment[action, observation, state]):  # type: ignore[misc, valid-type, unused-ignore]
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self, session: Session) -> None:
            super().__init__()
            self.session = session
            self._episode, self._turns = uuid4().hex, 0

        def reset(self, seed: int | None = None, episode_id: str | None = None, **given: Any) -> Any:
            asked: Any = options(seed=seed, **given)
            if asked.enter is None and asked.noise == "same":
                seen = self.session.reset(asked.seed)
            else:
                # Nothing changes before the token is read, so a damaged one leaves the episode where it is.
                seen = self._enter(asked)
            self._episode, self._turns = episode_id or uuid4().hex, 0
            return self._shown(seen, asked)

        def step(self, action: Any, timeout_s: float | None = None, **given: Any) -> Any:
            if (action.enter, action.noise, action.seed) != (None, "same", None):
                self._enter(action)
            seen = self.session.step(action.text)
            # Every step is a turn, and brings its reward once, so that sums over an episode are its return.
            self._turns += 1
            return self._shown(seen, action)

        @property
        def state(self) -> Any:
            return state(episode_id=self._episode, step_count=self._turns, token=self.session.token())

        def _enter(self, asked: Any) -> Seen:
            if asked.enter is None:
                raise ValueError(f"noise={asked.noise!r} and seed={asked.seed} are those of a token: give enter=TOKEN")
            return self.session.enter(asked.enter, noise=asked.noise, seed=asked.seed)

        def _shown(self, seen: Seen, asked: Any) -> Any:
            done, token = seen.terminated or seen.truncated, self.session.token() if asked.keep else None
            ends = {"terminated": seen.terminated, "truncated": seen.truncated, "done": done}
            return observation(text=seen.text, reward=seen.reward, token=token, metadata=seen.info, **ends)

    return OpenEnvKinds(action, observation, state, TsrEnvironment, _client())


def openenv_factory(env: str, **settings: Any) -> Callable[[], Any]:
    """Return a function that makes an OpenEnv `Environment` of an environment of text, one for each session.

    Args:
        env: Gymnasium id or short name.
        settings: Of the environment.

    Raises:
        MissingExtra: OpenEnv is not installed.
    """
    kinds = openenv_kinds()
    make = partial(session_of, env, settings)
    return lambda: kinds.environment(make())


def openenv_app(env: str, *, max_sessions: int = 64, **settings: Any) -> Any:
    """Return an application that serves an environment of text, for ``uvicorn.run(app)``.

    Args:
        env: Gymnasium id or short name.
        max_sessions: Most episodes at a time, each of a separate client.
        settings: Of the environment.

    Raises:
        ConfigError: The environment is not made of text.
        MissingExtra: OpenEnv is not installed.
    """
    kinds = openenv_kinds()
    # A wrong name or setting is an error now, and not at the first client's request.
    session_of(env, settings)
    from openenv.core.env_server import create_app

    return create_app(
        openenv_factory(env, **settings),
        kinds.action,
        kinds.observation,
        env_name=env_id(env).replace("/", "-"),
        max_concurrent_envs=max_sessions,
    )
