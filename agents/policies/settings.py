"""Settings of servers that answer as OpenAI's API does; nothing is imported for them."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from tsr_gym.errors import ConfigError
from tsr_gym.sections import check_choices, check_numbers, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """An OpenAI-compatible server, and how patiently it is asked."""

    base_url: str = setting("https://api.openai.com/v1", metavar="URL")
    """Of the server, as in http://127.0.0.1:8000/v1."""
    api_key_from: str = setting("OPENAI_API_KEY", metavar="VARIABLE")
    """Environment variable that holds the key; without it no key is sent."""
    at_once: int = 8
    """Requests that are open at a time."""
    per_minute: float | None = None
    """Most requests a minute; None for no limit but the server's own, which is obeyed."""
    patience: float = 120.0
    """Seconds to wait for an answer."""
    retries: int = 6
    """How often a request is repeated that met a limit, a fault of the server or silence; waits double."""
    max_failures: int = 10
    """How many requests may fail for good, and count as empty answers, before the work stops."""
    limit_as: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the server calls the longest answer; OpenAI's newer models know only the second name."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_numbers(self, "at_once", least=1)
        check_numbers(self, "retries", "max_failures", least=0)
        check_numbers(self, "per_minute", "patience", above=0)
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"wanted a base_url such as http://127.0.0.1:8000/v1, got {parts.scheme or 'no'} scheme")
        if "@" in parts.netloc or parts.query:
            raise ConfigError(f"a key belongs into the environment variable {self.api_key_from}, not into base_url")
