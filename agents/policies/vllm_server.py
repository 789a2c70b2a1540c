"""VllmServer: a model behind vLLM's own HTTP server, a child of this process or one that runs already.

Every sample has the version of the weights that it was sampled by. A server that was restarted, by this process or by
another, has no version of ours; it gets the weights again before its answers count.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Event, Lock
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import torch
from safetensors.torch import save_file

from tsr_gym.agents.policies.engine import Capabilities, Completion
from tsr_gym.agents.policies.vllm_engine import BLOCK, Asked, CacheCounts, VllmEngine, reason_of, served_model
from tsr_gym.errors import ConfigError, EngineFailed, Unsupported, shown
from tsr_gym.optional import require


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
        """Return the JSON answer of a path, None for an empty one; with a body the request is a POST.

        Raises:
            ServerLost: There is no answer, or a status of 500 or more.
            EngineFailed: The server refuses.
        """
        return json.loads(self.text(path, body, patience=patience) or "null")

    def text(self, path: str, body: dict[str, Any] | None = None, *, patience: float | None = None) -> str:
        """Return the text that a path answers; see `ask`."""
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
        failure = ServerLost if status >= 500 else EngineFailed
        raise failure(f"{self.url}{path}: status {status}: {shown(text)}")


LOOPBACK = "127.0.0.1"
# Environment of a child; the first variable enables the paths that update weights.
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_CI_ENV": "1",
    # Otherwise vLLM binds its threads to fixed cores, which other processes use, too.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
# These replace values that an engine in this process may have written into the environment.
SERVING = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
# Most requests that are open at a time, seconds that a server may take to begin, and between two looks at it.
AT_ONCE, BEGINNING, PAUSE = 64, 900.0, 0.2


class VllmServer:
    """A language model behind vLLM's own server.

    Where an answer fails to come, a child is ended and started again, gets the weights that it had, and is asked for
    what is missing: equal prompt and seed give the same sample. Of another's server only the weights are repaired.

    Args:
        folder: A Hugging Face model with weights in safetensors.
        url: A server that runs already and sees this machine's files, started with ``VLLM_SERVER_DEV_MODE=1`` and
            ``--logprobs-mode processed_logprobs``; None starts one on loopback, which ends with this process.
        dtype: Of a child: ``"float32"`` or ``"bfloat16"``.
        cache_gib: Memory of a child's keys and values.
        max_batch: Most samples that a child generates side by side.
        patience: Seconds to wait for an answer.
        restarts: How often in a row an answer may fail to come.

    Attributes:
        weight_version: Of its weights.
        context: Longest sequence.
        vocabulary: Number of tokens.

    Raises:
        CheckpointError: The folder holds no model.
        ConfigError: vLLM cannot compute its heads here, or the address is none.
        EngineFailed: The server does not begin, or is silent.
        MissingExtra: vLLM is not installed, and a server is to be started.
    """

    def __init__(
        self,
        folder: Path,
        *,
        url: str | None = None,
        dtype: str = "float32",
        cache_gib: float = 1.0,
        max_batch: int = 256,
        patience: float = 300.0,
        restarts: int = 3,
    ) -> None:
        self._model = served_model(folder)
        self.context, self.vocabulary = self._model.context, self._model.vocabulary
        self.weight_version = 0
        self._restarts, self._patience = restarts, patience
        self._on_cpu = not torch.cuda.is_available()
        self._exact = self._on_cpu and dtype == "float32"
        self._aborted, self._lock, self._going = Event(), Lock(), set[str]()
        # Part of every version, because other runs may use the same server.
        self._run = uuid4().hex
        self._scratch = Path(tempfile.mkdtemp(prefix="tsr-vllm-"))
        self._forget = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self._pushed: Path | None = None
        self._child: _Child | None = None
        self._flags = self._flags_of(dtype, cache_gib, max_batch)
        if url is None:
            require("vllm", "vllm")
            if self._on_cpu:
                self._model.check_heads()
            self._begin()
        else:
            self._http = VllmHttp(url, patience=patience)
            self._http.text("/health", patience=min(patience, 10.0))
        self._push()

    @property
    def capabilities(self) -> Capabilities:
        """Everything, except that samples depend on the batch composition on a GPU and in lower precision."""
        return Capabilities(company=self._exact)

    @property
    def url(self) -> str:
        """Address of the server; ``url + "/v1"`` answers OpenAI's API."""
        return self._http.url

    @property
    def pid(self) -> int | None:
        """Process of a child, the first of its group; None for another's server."""
        return None if self._child is None else self._child.process.pid

    def engine(self, *, stop_ids: Sequence[int], max_tokens: int, temperature: float) -> VllmEngine:
        """Return an engine that samples from the model; see `Host.engine`."""
        return VllmEngine(self, tuple(stop_ids), max_tokens=max_tokens, temperature=temperature)

    def sample(self, asked: Sequence[Asked], settings: dict[str, Any]) -> list[Completion]:
        """Return a completion for each; see `VllmHost.sample`.

        Raises:
            EngineFailed: The server refuses, or stays silent.
        """
        with self._lock:
            self._aborted.clear()
            answers: dict[int, Completion] = {}
            # Answers of earlier attempts stay: equal prompt and seed give the same sample, also after a restart.
            for attempt in range(self._restarts + 1):
                lost = self._ask(asked, settings, answers)
                if lost is None:
                    return [answers[number] for number in range(len(asked))]
                if attempt < self._restarts:
                    self._repair(lost)
            raise EngineFailed(f"{self.url}: no answer after {self._restarts} restarts: {lost}") from lost

    def load_weights(self, weights: Iterable[tuple[str, Any]], *, version: int | None = None) -> None:
        """Replace all parameters, or none, and forget all keys and values; see `VllmEngine.load_weights`."""
        given = list(weights)
        whole = self._model.whole_weights(given) if given else {}
        with self._lock:
            before = self._pushed
            self.weight_version = self.weight_version + 1 if version is None else version
            if whole:
                self._pushed = self._scratch / uuid4().hex
                self._pushed.mkdir()
                # safetensors refuses tensors that share memory, and the tied output layer has to be in the file.
                own = {name: value.detach().clone().contiguous().cpu() for name, value in whole.items()}
                save_file(own, self._pushed / "model.safetensors", metadata={"format": "pt"})
            try:
                self._push()
            except ServerLost as lost:
                self._repair(lost)
            if whole and before is not None:
                shutil.rmtree(before, ignore_errors=True)

    def load_adapter(self, folder: Path, *, version: int) -> None:
        """Refuse an adapter: a server that was started again would not have it.

        Raises:
            Unsupported: Always.
        """
        raise Unsupported(f"{self.url} takes whole weights: hand over merged ones, or use --engine vllm")

    def abort(self) -> None:
        """End what another thread is generating; see `Engine.abort`."""
        self._aborted.set()
        if going := sorted(self._going):
            self._http.text("/abort_requests", {"request_ids": going})

    def prefix_cache(self) -> CacheCounts:
        """Return the counts of the prefix cache since the server began."""
        lines = self._http.text("/metrics").splitlines()
        names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
        return CacheCounts(*(int(sum(float(line.split()[-1]) for line in lines if _is(line, name))) for name in names))

    def close(self) -> None:
        """End a child, and delete what was written for it."""
        if self._child is not None:
            self._child.end()
        self._forget()

    def _ask(self, asked: Sequence[Asked], settings: dict[str, Any], done: dict[int, Completion]) -> ServerLost | None:
        """Add the missing answers to `done`; return the failure that left some missing, None if all are there."""
        lost: ServerLost | None = None
        with ThreadPoolExecutor(AT_ONCE) as pool:
            missing = [number for number in range(len(asked)) if number not in done]
            answers = {number: pool.submit(self._one, asked[number], settings) for number in missing}
            for number, answer in answers.items():
                try:
                    done[number] = answer.result()
                except ServerLost as error:
                    lost = error
                    pool.shutdown(wait=False, cancel_futures=True)
                except CancelledError:
                    continue
        return lost

    def _one(self, asked: Asked, settings: dict[str, Any]) -> Completion:
        if self._aborted.is_set():
            return self._first_token(asked, settings)
        name = f"generate-tokens-{uuid4().hex}"
        self._going.add(name)
        try:
            answer = self._request(asked, settings, name)
        finally:
            self._going.discard(name)
        return answer if answer.token_ids else self._first_token(asked, settings)

    def _first_token(self, asked: Asked, settings: dict[str, Any]) -> Completion:
        """Return an answer that was aborted before its first token, which it has in any case."""
        answer = self._request(asked._replace(max_tokens=1), settings, f"generate-tokens-{uuid4().hex}")
        return answer._replace(finish_reason="stop" if answer.finish_reason == "stop" else "abort")

    def _request(self, asked: Asked, settings: dict[str, Any], name: str) -> Completion:
        params = settings | {"seed": asked.seed, "max_tokens": asked.max_tokens}
        body = {"token_ids": [*asked.prompt], "request_id": name.partition("tokens-")[2], "sampling_params": params}
        answer = self._http.ask("/inference/v1/generate", body)
        try:
            (choice,) = answer["choices"]
            ids = tuple(choice["token_ids"])
            logprobs = tuple(token["logprob"] for token in (choice["logprobs"] or {"content": []})["content"])
            versions = {span["version"] for span in choice["weight_versions"] or ()}
            details = answer["usage"].get("prompt_tokens_details") or {}
            reason = reason_of(choice["finish_reason"])
        except (LookupError, TypeError, ValueError) as error:
            raise EngineFailed(f"{self.url}: an answer of another form than vLLM 0.32 gives ({error!r})") from error
        if ids and versions != {self._label}:
            raise OtherWeights(f"{self.url} samples by the weights {sorted(versions)}, wanted are {self._label!r}")
        return Completion(ids, logprobs, reason, details.get("cached_tokens") or 0, self.weight_version)

    @property
    def _label(self) -> str:
        return f"{self._run}-{self.weight_version}"

    def _push(self) -> None:
        """Send the server the last weights and their version."""
        if self._pushed is not None:
            reload = {"method": "reload_weights", "kwargs": {"weights_path": str(self._pushed)}}
            self._http.text("/collective_rpc", reload)
        self._http.text("/reset_prefix_cache", {})
        # The version comes last, so a server that has the version also has the weights.
        self._http.text("/update_weight_version", {"new_version": self._label})

    def _repair(self, lost: ServerLost) -> None:
        """Send a running server its weights again; restart a child that does not answer."""
        if self._child is not None and not isinstance(lost, OtherWeights):
            self._child.end()
            self._begin()
        try:
            self._push()
        except ServerLost as error:
            raise EngineFailed(f"{error}: see whether the server is up, and start it again") from lost

    def _begin(self) -> None:
        port = _free_port()
        self._child = _Child([*self._flags, "--port", str(port)], self._scratch / "server.log")
        self._http = VllmHttp(f"http://{LOOPBACK}:{port}", patience=self._patience)
        end = monotonic() + BEGINNING
        while True:
            try:
                self._http.text("/health", patience=5.0)
            except ServerLost as error:
                if self._child.process.poll() is not None or monotonic() > end:
                    errors = self._child.last_words()
                    self._child.end()
                    raise EngineFailed(f"vLLM's server does not begin: {errors}") from error
                sleep(PAUSE)
            else:
                return

    def _flags_of(self, dtype: str, cache_gib: float, max_batch: int) -> list[str]:
        flags = {
            "--model": self._model.folder.absolute(),
            "--host": LOOPBACK,
            "--dtype": dtype,
            "--max-model-len": self.context,
            "--max-num-seqs": max_batch,
            "--block-size": BLOCK,
            "--kv-cache-memory-bytes": int(cache_gib * 2**30),
            "--logprobs-mode": "processed_logprobs",
            # Else the model's own settings of sampling would fill in what a request leaves open.
            "--generation-config": "vllm",
            "--served-model-name": "policy",
        }
        words = [str(part) for flag in flags.items() for part in flag]
        # The second offers the path that takes and gives token ids.
        words += ["--enable-prefix-caching", "--enable-scale-out", "--enable-prompt-tokens-details"]
        if self._on_cpu:
            # See `VllmModel`: prompts of seeded requests are never computed in parts.
            tokens = str(max(8192, self.context))
            words += ["--enforce-eager", "--no-enable-chunked-prefill", "--max-num-batched-tokens", tokens]
        return words


class _Child:
    """A server that this process started; it ends with this object, and with this process."""

    def __init__(self, flags: Sequence[str], log: Path) -> None:
        self._log = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tsr_gym.agents.policies.vllm_child", *flags],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={**ENVIRONMENT, **os.environ, **SERVING},
                start_new_session=True,
            )
        self.end = weakref.finalize(self, _end, self.process)

    def last_words(self) -> str:
        """Return the first errors in its log, or the end of the log."""
        log = self._log.read_text(errors="replace").strip()
        errors = dict.fromkeys(re.findall(r"\b\w+Error: .+", log))
        return "; ".join([*errors][:3]) or log[-2000:]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process with its group, of which it is the first, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _is(line: str, metric: str) -> bool:
    return line.startswith((f"{metric} ", f"{metric}{{"))
