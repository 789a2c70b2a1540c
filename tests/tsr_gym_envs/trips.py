"""Trips: what somebody says in an environment of text until the episode ends."""


def trip(env, turn, rng=None):
    """Return what somebody says, turn by turn, from where an episode stands; every turn has to be valid.

    Args:
        env: The unwrapped environment.
        turn: From it and random numbers to what is said.
        rng: None for somebody who draws none.
    """
    said = []
    while not (env.episode.terminated or env.episode.truncated):
        said.append(turn(env, rng))
        assert env.step(said[-1])[-1]["action_is_valid"]
    return said
