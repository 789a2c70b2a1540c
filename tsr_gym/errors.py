"""The error vocabulary of tsr-gym.

An agent's bad move is data and never raises. These errors are for the programmer, and every message states what was
wanted, what came and what to do.
"""

from functools import partial
from types import FunctionType, MethodType

MAX_SHOWN = 300


def shown(value: object) -> str:
    """Return the text of an untrusted value for a message: its representation, cut to `MAX_SHOWN`, or its class."""
    try:
        text = repr(value)
    # An integer of too many digits has no representation, and foreign objects may raise any exception.
    except Exception:
        return f"a {type(value).__qualname__}"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def named(part: object) -> str:
    """Return the name of a function or class for a message, as the command line writes it; of an object, its class.

    >>> named(partial(named)), named(3)
    ('tsr_gym.errors:named', 'builtins:int')
    """
    while isinstance(part, partial | MethodType):
        part = part.func if isinstance(part, partial) else part.__func__
    owner = part if isinstance(part, FunctionType | type) else type(part)
    return f"{owner.__module__}:{owner.__qualname__}"


class TsrGymError(Exception):
    """Base class of every error that tsr-gym raises on purpose."""


class SnapshotError(TsrGymError):
    """A snapshot is damaged, foreign to the environment it is restored into, or cannot be taken."""


class ReplayDiverged(SnapshotError):
    """A replay, step by step, had another result than the record; the environment must be reset."""


class EpisodeOver(TsrGymError):
    """`step` or `expand` was called on an episode that has ended."""


class InvalidLevel(TsrGymError, ValueError):
    """A level, map or level file breaks the rules of its format."""


class InvalidCatalogue(TsrGymError, ValueError):
    """A WebShop catalogue, or a file that one is made from, is missing, damaged or incomplete."""


class InvalidCorpus(TsrGymError, ValueError):
    """A corpus, a file of questions or a search index is missing, damaged or incomplete."""


class RetrievalFailed(TsrGymError):
    """A retriever could not answer; the episode is unchanged and can be continued."""


class GenerationFailed(TsrGymError):
    """No level with the wanted properties was found within the bounded number of attempts."""


class NotFinite(TsrGymError, ValueError):
    """A score, value, reward or log-probability is NaN, infinite, or no number: a search cannot compare it."""


class InvalidTree(TsrGymError, ValueError):
    """A saved tree, or a bank of start states from trees, is damaged or of another format."""


class ConfigError(TsrGymError, ValueError):
    """Settings are unknown, impossible or contradict each other."""


class UnknownSetting(ConfigError, TypeError):
    """An environment was given a keyword that it does not have."""


class CheckpointError(TsrGymError):
    """A model folder or a training checkpoint is missing, incomplete or damaged."""


class NothingThere(CheckpointError, ConfigError):
    """A path that was chosen holds no model and no run."""


class PromptTooLong(TsrGymError):
    """A prompt leaves no room for an answer in the model's context."""


class Unsupported(TsrGymError, NotImplementedError):
    """An engine was asked for something outside of its capabilities."""


class EngineFailed(TsrGymError):
    """An engine cannot answer, stopped, or does not use the weights that it was given."""


class TrainingDiverged(TsrGymError):
    """A loss or gradient became NaN or infinite, and that step was not taken; or the weights after an update did.

    Attributes:
        steps_taken: Optimizer steps of the same update that had been taken.
    """

    steps_taken: int = 0


class WorkerLost(TsrGymError):
    """Another process of a distributed run has ended or stopped answering, and this one cannot continue alone."""


class CheckFailed(TsrGymError, AssertionError):
    """A conformance check failed; `check` names the rule and the message names the culprit."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(f"[{check}] {message}")
        self.check = check


class MissingExtra(TsrGymError, ImportError):
    """An optional package is not installed; the message has the pip command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package!r}, which is not installed: pip install 'tsr-gym[{extra}]'")
        self.package = package
        self.extra = extra
