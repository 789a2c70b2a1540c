"""Play a policy in a text environment until the episode ends."""


def trip(env, turn, rng=None):
    """Return the turns played from the current state to the end of the episode; every turn must be valid.

    Args:
        env: The unwrapped environment.
        turn: The policy, from environment and random numbers to the text of a turn.
        rng: Random numbers of the policy; None for a policy that draws none.
    """
    turns = []
    while not (env.episode.terminated or env.episode.truncated):
        turns.append(turn(env, rng))
        assert env.step(turns[-1])[-1]["action_is_valid"]
    return turns
