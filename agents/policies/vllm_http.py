"""VllmHttp: requests to vLLM's own server, each bounded in time."""

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from tsr_gym.errors import ConfigError, EngineFailed, shown


class ServerLost(EngineFailed):
    """A server is silent or has ended; it may answer after it was started again."""


class OtherWeights(ServerLost):
    """A server samples by other weights than it was given."""


class VllmHttp:
    """A server's address, and how patiently it is asked.

    Args:
        url: As in http://127.0.0.1:8000.
        patience: Seconds to wait for an answer.

    Raises:
        ConfigError: The address is none.
    """

    def __init__(self, url: str, *, patience: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ConfigError(f"wanted the address of a server such as http://127.0.0.1:8000, got {url!r}")
        self.url = url.rstrip("/")
        self._patience = patience
        self._connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._at = (parts.hostname, parts.port)

    def ask(self, path: str, body: dict[str, Any] | None = None, *, patience: float | None = None) -> Any:
        """Return what a path answers in JSON, None for an empty answer; with a body it is posted.

        Raises:
            ServerLost: Nobody answers, or only that the engine is dead.
            EngineFailed: The server refuses.
        """
        return json.loads(self.text(path, body, patience=patience) or "null")

    def text(self, path: str, body: dict[str, Any] | None = None, *, patience: float | None = None) -> str:
        """Return what a path answers; see `ask`."""
        connection = self._connect(*self._at, timeout=self._patience if patience is None else patience)
        try:
            sent = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            connection.request("GET" if body is None else "POST", path, body=sent, headers=headers)
            response = connection.getresponse()
            status, text = response.status, response.read().decode()
        except (OSError, HTTPException) as error:
            raise ServerLost(f"{self.url}{path}: no answer ({type(error).__name__}: {error})") from error
        finally:
            connection.close()
        if status == 200:
            return text
        kind = ServerLost if status >= 500 else EngineFailed
        raise kind(f"{self.url}{path}: status {status}: {shown(text)}")
