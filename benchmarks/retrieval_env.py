"""Steps of retrieval QA: episodes of searches that were asked before, observations included, on the generated world.

Run: python -m benchmarks.retrieval_env
"""

from statistics import median
from time import process_time
from typing import Any

import gymnasium as gym

import tsr_gym
from benchmarks.measure import best_seconds, write_result

EPISODES, REPEATS = 300, 7


def episodes(env: gym.Env[Any, Any]) -> list[tuple[str, list[str]]]:
    """Return question ids and the turns of an episode each: three searches and an answer."""
    base: Any = env.unwrapped
    found = []
    for question in base.questions.questions[:EPISODES]:
        words = question.question.split()
        searches = [f"<search>{' '.join(words[start:])}</search>" for start in range(3)]
        found.append((question.id, [*searches, "<answer>nobody knows</answer>"]))
    return found


def play(env: gym.Env[Any, Any], plan: list[tuple[str, list[str]]]) -> tuple[int, float]:
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


def main() -> None:
    """Measure bare steps, steps through make's wrappers, and snapshots."""
    env = gym.make("tsr/RetrievalQA-v0")
    bare: Any = env.unwrapped
    plan = episodes(env)
    play(env, plan)
    rates = {}
    for name, one in (("bare", bare), ("through gym.make's wrappers", env)):
        runs = [play(one, plan) for _ in range(REPEATS)]
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


if __name__ == "__main__":
    main()
