"""How many actions limits of turns and of actions leave together."""


def actions_within(turns_left: int | None, actions_left: int | None, max_actions_per_turn: int | None) -> int | None:
    """Return how many more actions an episode can hold; None for any number.

    Args:
        turns_left: Turns that are left, None for any number.
        actions_left: Actions that are left, None for any number.
        max_actions_per_turn: Most actions in a turn, None for any number.

    >>> actions_within(2, 10, 3), actions_within(2, 10, None), actions_within(0, None, None)
    (6, 10, 0)
    """
    bounds = [] if actions_left is None else [actions_left]
    if turns_left is not None and (max_actions_per_turn is not None or turns_left == 0):
        bounds.append(turns_left * (max_actions_per_turn or 0))
    return min(bounds, default=None)
