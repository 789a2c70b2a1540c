"""Retrieval QA as a server under load, and as an environment: requests per second, steps per second, snapshots.

- server: many clients at once on loopback, over the real passages in ../shared. Each client has its own connection and
  sends the next request as soon as it has the answer. Every answer is compared with that of the embedded retriever; a
  different one, or any status but 200, is an error. Clients and server share the machine, so the server's processor
  time is reported with the times that the clients measured.
- env: episodes whose searches were made before, observations included, on the generated world.

Run: python -m benchmarks.retrieval_server [--quick] [server] [env]
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from http.client import HTTPConnection
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from time import process_time
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import tsr_gym
from benchmarks.measure import SHARED, best_seconds, run_parts, run_timed, shared_rows, write_result
from tsr_gym.orphans import end_with_parent
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.corpus import build_index

EPISODES, REPEATS = 300, 7


def episodes(env: gym.Env[Any, Any]) -> list[tuple[str, list[str]]]:
    """Return question ids and the turns of an episode each: three searches and an answer."""
    base: Any = env.unwrapped
    plans = []
    for question in base.questions.questions[:EPISODES]:
        words = question.question.split()
        searches = [f"<search>{' '.join(words[start:])}</search>" for start in range(3)]
        plans.append((question.id, [*searches, "<answer>nobody knows</answer>"]))
    return plans


def play_turns(env: gym.Env[Any, Any], plan: list[tuple[str, list[str]]]) -> tuple[int, float]:
    """Play the episodes; return the number of steps and the processor time that they took, resets left out."""
    steps, seconds = 0, 0.0
    for name, turns in plan:
        env.reset(options={"question_id": name})
        start = process_time()
        for turn in turns:
            env.step(turn)
        seconds += process_time() - start
        steps += len(turns)
    return steps, seconds


def measure_env() -> None:
    """Measure bare steps, steps through make's wrappers, and snapshots."""
    env = gym.make("tsr/RetrievalQA-v0")
    bare: Any = env.unwrapped
    plan = episodes(env)
    play_turns(env, plan)
    rates = {}
    for name, target in (("bare", bare), ("through gym.make's wrappers", env)):
        runs = [play_turns(target, plan) for _ in range(REPEATS)]
        rates[name] = median(steps / seconds for steps, seconds in runs)
    env.reset(options={"question_id": plan[0][0]})
    env.step(plan[0][1][0])

    def there_and_back() -> None:
        for _ in range(2000):
            bare.restore(bare.snapshot())

    def whole_stack() -> None:
        for _ in range(2000):
            tsr_gym.restore(env, tsr_gym.snapshot(env))

    write_result(
        "retrieval_env",
        {
            "steps_per_second_cached": rates,
            "snapshot_and_restore_us": {
                "bare": best_seconds(there_and_back) / 2000 * 1e6,
                "stack": best_seconds(whole_stack) / 2000 * 1e6,
            },
        },
    )


TOP_K = 3
PROCESSES = 2
WARM_UP_S = 1.0


class Load(NamedTuple):
    """What is asked of the server at once.

    Attributes:
        clients: How many.
        queries: Queries in a request; None for the dialect of one.
    """

    clients: int
    queries: int | None


class Seen(NamedTuple):
    """What some clients saw.

    Attributes:
        seconds: From asking to the whole answer, a request each.
        errors: Answers that were wrong or missing.
    """

    seconds: list[float]
    errors: int


LOADS = (Load(1, None), Load(1, 64), Load(16, None), Load(200, None), Load(200, 8))


def measure_server(seconds: float) -> None:
    """Measure every load and write the result."""
    questions = [row["question"] for row in shared_rows("data/retrieval/mini_qa.jsonl")]
    with TemporaryDirectory() as folder:
        index = build_index(SHARED / "data" / "retrieval" / "mini_corpus.jsonl", Path(folder) / "index")
        retriever = BM25Retriever(index)
        wanted = [[passage.id for passage in passages] for passages in retriever.retrieve(questions, TOP_K)]
        rows = [measured(index, load, questions, wanted, seconds) for load in LOADS]
    write_result("retrieval_server", {"passages": 19_863, "top_k": TOP_K, "seconds": seconds, "loads": rows})


def measured(index: Path, load: Load, questions: list[str], wanted: list[list[str]], seconds: float) -> dict[str, Any]:
    """Start a server, put one load on it, and return its row."""
    command = [sys.executable, "-m", "tsr_gym", "retrieval", "serve", "--index", str(index), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().partition("/retrieve")[0].rpartition(":")[2])
            processes = min(PROCESSES, load.clients)
            start = time.time() + 3
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
                shares = [load.clients // processes + (n < load.clients % processes) for n in range(processes)]
                runs = [
                    pool.submit(play, port, load.queries, share, questions, wanted, (start, seconds))
                    for share in shares
                ]
                time.sleep(max(0.0, start + WARM_UP_S - time.time()))
                before = processor_seconds(server.pid)
                time.sleep(seconds)
                spent = processor_seconds(server.pid) - before
                seen = [run.result() for run in runs]
        finally:
            server.terminate()
    return row_of(load, seen, seconds, spent)


def row_of(load: Load, seen: list[Seen], seconds: float, spent: float) -> dict[str, Any]:
    """Return the numbers of one load."""
    taken = np.array([second for part in seen for second in part.seconds])
    queries = len(taken) * (load.queries or 1)
    p50, p99 = np.percentile(taken, [50, 99])
    return {
        "clients": load.clients,
        "dialect": "single" if load.queries is None else f"batch of {load.queries}",
        "requests": len(taken),
        "errors": sum(part.errors for part in seen),
        "queries_per_second": round(queries / seconds, 1),
        "p50_ms": round(1e3 * p50, 2),
        "p99_ms": round(1e3 * p99, 2),
        "max_ms": round(1e3 * taken.max(), 2),
        "server_cpu_ms_per_query": round(1e3 * spent / queries, 3),
    }


def play(
    port: int,
    num_queries: int | None,
    clients: int,
    questions: list[str],
    wanted: list[list[str]],
    when: tuple[float, float],
) -> Seen:
    """Run some of the clients in this process; only requests that begin after the warm-up count."""
    seconds: list[float] = []
    errors: list[object] = []
    threads = [
        Thread(target=ask, args=(port, num_queries, number, questions, wanted, when, seconds, errors))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Seen(seconds, len(errors))


def ask(
    port: int,
    num_queries: int | None,
    first: int,
    questions: list[str],
    wanted: list[list[str]],
    when: tuple[float, float],
    seconds: list[float],
    errors: list[object],
) -> None:
    """Be one client from its start to its end."""
    count_from = when[0] + WARM_UP_S
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    time.sleep(max(0.0, when[0] - time.time()))
    place = 37 * first
    while (now := time.time()) < count_from + when[1]:
        numbers = [(place + n) % len(questions) for n in range(num_queries or 1)]
        place += len(numbers)
        texts = [questions[number] for number in numbers]
        asked: dict[str, Any] = {"query": texts[0]} if num_queries is None else {"queries": texts}
        body = json.dumps(asked | {"topk": TOP_K, "return_scores": True})
        began = time.perf_counter()
        try:
            connection.request("POST", "/retrieve", body)
            answer = connection.getresponse()
            reply = json.loads(answer.read())
            taken = time.perf_counter() - began
            ids = [[hit["document"]["id"] for hit in hits] for hits in reply["result"]]
            if answer.status != 200 or ids != [wanted[number] for number in numbers]:
                errors.append(reply)
        except (OSError, ValueError, LookupError) as error:
            errors.append(error)
            connection.close()
            continue
        if now >= count_from:
            seconds.append(taken)


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure the named parts, or both, and write their results."""
    quick = "--quick" in sys.argv
    parts = {"server": partial(measure_server, 2.0 if quick else 15.0), "env": measure_env}
    run_parts(parts, [name for name in sys.argv[1:] if name != "--quick"])


if __name__ == "__main__":
    run_timed(main)
