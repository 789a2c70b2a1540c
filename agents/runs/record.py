"""The line that a training run writes about an update; everything that a clock measured stands under ``seconds``."""

from collections.abc import Mapping
from statistics import fmean, pstdev
from typing import Any

from tsr_gym.agents.episodes.collect import ChosenSearch, Collected
from tsr_gym.agents.episodes.play import summarise
from tsr_gym.agents.lessons.filters import Filtered
from tsr_gym.agents.runs.checkpoint import Progress
from tsr_gym.agents.runs.health import group_signs, tree_signs

LEARNED = (
    *("policy_loss", "value_loss", "entropy", "clip_fraction", "grad_norm", "critic_grad_norm", "spikes", "skipped"),
    *("kl", "imitation_loss", "mismatch_kl", "mismatch_cut", "lr", "optimizer_steps", "guide_explained"),
)


def update_record(
    search: ChosenSearch,
    progress: Progress,
    collected: Collected,
    groups: Filtered,
    learned: Mapping[str, float | None],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Return the line of an update; means over trajectories are None where there were none.

    Args:
        search: How trajectories come to be.
        progress: Of the run, this update included.
        collected: What the searches brought.
        groups: What was learned from.
        learned: What the learner says of it; nothing where there was nothing to learn from.
        seconds: What took how long.
    """
    played = [trajectory for group in collected.groups for trajectory in group.trajectories]
    summary = summarise(played) if played else None
    rewards = [trajectory.total_reward for trajectory in played]
    spent = collected.spent
    return {
        "step": progress.update,
        "search": search.name,
        "per_instance": search.words,
        "success": None if summary is None else summary.success,
        "reward_mean": fmean(rewards) if rewards else None,
        "reward_std": pstdev(rewards) if rewards else None,
        "response_length": None if summary is None else summary.response_length,
        "turns": None if summary is None else summary.turns,
        "valid": None if summary is None else summary.valid,
        "trajectories": len(played),
        "groups": len(collected.groups),
        "groups_kept": len(groups),
        "dropped": dict(groups.dropped),
        **group_signs(collected.groups),
        **tree_signs(tree for trees in collected.trees for tree in trees),
        "sampled_tokens": spent.sampled_tokens,
        "sampled_tokens_total": progress.sampled_tokens,
        "prompt_tokens": spent.prompt_tokens,
        "prompt_tokens_total": progress.prompt_tokens,
        "prompt_tokens_saved": spent.prompt_tokens_saved,
        "model_calls": collected.model_calls,
        "env_steps": spent.env_steps,
        "restores": spent.restores,
        **{name: learned.get(name) for name in LEARNED},
        "optimizer_steps_total": progress.optimizer_steps,
        "seconds": dict(seconds),
    }
