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
from tsr_gym.node import plain
from tsr_gym.optional import require
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
        text, info = env.reset(seed=0)
        self.seen = Seen(text, None, False, False, _plain(info))

    def reset(self, seed: int | None = None, token: str | None = None) -> Seen:
        """Begin the episode of a seed, or continue the one at a token."""
        text, info = self.env.reset(seed=seed)
        self.seen = Seen(text, None, False, False, _plain(info))
        return self.seen if token is None else self.enter(token)

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
        self.seen = Seen(base.observe(episode.state), None, episode.terminated, episode.truncated, {})
        return self.seen

    def step(self, text: str) -> Seen:
        """Take a turn."""
        observation, reward, terminated, truncated, info = self.env.step(text)
        self.seen = Seen(observation, float(reward), terminated, truncated, _plain(info))
        return self.seen

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
        facts[name] = json.loads(json.dumps(value, default=plain))
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
        action: `text` (None to take no turn), `enter` (a token to restore first), `noise` and `seed` (of the random
            numbers from there on), and `keep` (whether the answer holds a token).
        observation: `text`, `terminated`, `truncated`, and `token` where it was requested; `metadata` is the info.
        environment: OpenEnv's `Environment` over a `Session`.
        client: OpenEnv's typed client.
    """

    action: type[Any]
    observation: type[Any]
    environment: type[Any]
    client: type[Any]


@cache
def _messages() -> tuple[type[Any], type[Any]]:
    """Return the classes of actions and observations."""
    from openenv.core.env_server import Action, Observation

    class TsrAction(Action):  # type: ignore[misc, unused-ignore]
        text: str | None = None
        enter: str | None = None
        noise: Literal["same", "fresh", "common"] = "same"
        seed: int | None = None
        keep: bool = False

    class TsrObservation(Observation):  # type: ignore[misc, unused-ignore]
        text: str
        terminated: bool = False
        truncated: bool = False
        token: str | None = None

    return TsrAction, TsrObservation


def _shown(seen: Seen, token: str | None) -> Any:
    """Return the result of a turn as OpenEnv's observation."""
    done = seen.terminated or seen.truncated
    ends = {"terminated": seen.terminated, "truncated": seen.truncated, "done": done}
    return _messages()[1](text=seen.text, reward=seen.reward, token=token, metadata=seen.info, **ends)


@cache
def openenv_kinds() -> OpenEnvKinds:
    """Return the classes, which are made at the first call.

    Raises:
        MissingExtra: OpenEnv is not installed.
    """
    require("openenv", "openenv")
    from openenv.core import EnvClient
    from openenv.core.client_types import StepResult
    from openenv.core.env_server import Environment, State

    action, observation = _messages()

    class TsrEnvironment(Environment[action, observation, State]):  # type: ignore[misc, valid-type, unused-ignore]
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self, session: Session) -> None:
            super().__init__()
            self.session = session
            self._state = State(episode_id=uuid4().hex)

        def reset(self, seed: int | None = None, episode_id: str | None = None, **given: Any) -> Any:
            token, keep = given.get("enter"), bool(given.get("keep", False))
            seen = self.session.reset(seed, token)
            self._state = State(episode_id=episode_id or uuid4().hex)
            return _shown(seen, self.session.token() if keep else None)

        def step(self, action: Any, timeout_s: float | None = None, **given: Any) -> Any:
            if action.enter is not None:
                self.session.enter(action.enter, noise=action.noise, seed=action.seed)
            if action.text is not None:
                self.session.step(action.text)
                self._state.step_count += 1
            return _shown(self.session.seen, self.session.token() if action.keep else None)

        @property
        def state(self) -> Any:
            return self._state

    class TsrClient(EnvClient[action, observation, State]):  # type: ignore[misc, valid-type, unused-ignore]
        def _step_payload(self, action: Any) -> dict[str, Any]:
            payload: dict[str, Any] = action.model_dump()
            return payload

        def _parse_result(self, payload: dict[str, Any]) -> Any:
            reward, done = payload.get("reward"), bool(payload.get("done", False))
            seen = observation(**{**payload["observation"], "reward": reward, "done": done})
            return StepResult(observation=seen, reward=reward, done=done, metadata=payload.get("metadata"))

        def _parse_state(self, payload: dict[str, Any]) -> Any:
            return State(**payload)

    return OpenEnvKinds(action, observation, TsrEnvironment, TsrClient)


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
