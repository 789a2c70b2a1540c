"""Token budget: how many groups a run of limited tokens searches side by side, so that it ends close to its limit."""

# Groups are searched together only where as many times the tokens that they are expected to take are left.
MARGIN = 4


def groups_at_once(left: int, *, sampled: int, groups: int, least: int = 1) -> int:
    """Return how many groups may be searched together while some tokens are left.

    What a group takes is expected from the mean of all groups of the run. Together they may take `MARGIN` times as much
    before they go beyond the limit; fewer than `least` are never searched, which then go beyond it by less than their
    own tokens.

    Args:
        left: Tokens that are left.
        sampled: Tokens that were sampled.
        groups: Groups that they were sampled for; of none nothing is known.
        least: Fewest groups, one for every process.

    >>> groups_at_once(4000, sampled=1000, groups=10)
    10
    """
    return max(least, left * groups // (MARGIN * sampled) if sampled else 0)
