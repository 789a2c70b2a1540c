"""Search: many searches at once, with one call of the policy per round for all of them."""

from collections.abc import Sequence

from tsr_gym.stack import Noise
from tsr_gym.tree import Budget, Policy, Rater, Strategy, Tree
from tsr_gym.wrappers.grow import grow
from tsr_gym.wrappers.tree_search import TreeSearchWrapper


def search(
    envs: Sequence[TreeSearchWrapper],
    policy: Policy,
    strategy: Strategy,
    *,
    seeds: Sequence[int],
    noise: Noise = "fresh",
    rater: Rater | None = None,
    limit: Budget | None = None,
    workers: int | None = None,
) -> list[Tree]:
    """Grow one tree per environment, from where each stands.

    Everything random in a tree (samples, dice, ties) derives from its seed and an address in it, so a tree does not
    depend on which others are grown with it.

    Args:
        envs: Environments, reset to their tasks; one that was never reset is reset with its seed.
        policy: Asked once a round for the wishes of all searches.
        strategy: Makes the wishes of one search, such as ``partial(beam, width=2, branching=4)``.
        seeds: One per environment.
        noise: The dice of imagined turns; with ``"same"`` the search is clairvoyant, and the trees record that.
        rater: Scores what grew in place of the environments' own scores.
        limit: Where each search ends at the latest; only counts that are not 0 bind.
        workers: None grows all trees in lock-step. Otherwise as many calls of the policy run at a time, from threads of
            their own, and no search waits for the slowest; the trees are the same.

    Returns:
        The trees, in the environments' order.

    Raises:
        ValueError: There are not as many seeds as environments, or an environment comes twice.
    """
    if len(envs) != len(seeds):
        raise ValueError(f"wanted one seed per environment, got {len(seeds)} seeds for {len(envs)}")
    if len({id(env) for env in envs}) != len(envs):
        raise ValueError("wanted different environments, got one twice: every tree needs a separate environment")
    # Every search begins a new tree at the environment's present state, with its own seed.
    for env, seed in zip(envs, seeds, strict=True):
        if not env.started:
            env.reset(seed=seed)
        env.begin(seed, noise=noise)
    grow(envs, policy, strategy, noise=noise, rater=rater, limit=limit, workers=workers)
    return [env.tree for env in envs]
