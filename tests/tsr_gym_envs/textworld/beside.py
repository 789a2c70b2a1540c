"""TextWorld's own wrapped environment compared with ours, on the same file, command by command."""

import gymnasium as gym
import numpy as np

from tsr_gym_envs.textworld.env import about
from tsr_gym_envs.zmachine.machine import refusal

FIELDS = ("feedback", "description", "inventory")


def start_theirs(story):
    import textworld

    infos = textworld.EnvInfos(
        feedback=True, description=True, inventory=True, score=True, won=True, lost=True, facts=True,
        admissible_commands=True,
    )  # fmt: skip
    return textworld.start(str(story), infos)


def of_theirs(state):
    facts = tuple(sorted(str(fact) for fact in state["_facts"]))
    ended = "won" if state.won else "lost" if state.lost else ""
    return (*(state[name] for name in FIELDS), state.score, ended, tuple(state.admissible_commands), facts)


def of_ours(env):
    state = env.state
    scene = state.scene
    shown = (scene.feedback, scene.description, scene.inventory)
    return (*shown, scene.points, scene.ended, env.legal_actions(state), scene.facts)


def draw(rng, legal, words):
    """Return an admissible command, or words of the game in any order."""
    if rng.random() < 0.75:
        return legal[rng.integers(len(legal))]
    while True:
        command = " ".join(words[pick] for pick in rng.integers(len(words), size=rng.integers(1, 5)))
        if refusal(command, frozenset(words)) is None:
            return command


def compare(settings, num_commands, seed):
    """Play both at random, going back to earlier states now and then; return how many commands were compared.

    Raises:
        AssertionError: They differ; the message holds the commands since the last place that both agreed to go back to.
    """
    env = gym.make("tsr/TextWorld-v0", disable_env_checker=True, max_turns=None, **settings).unwrapped
    rng = np.random.default_rng(seed)
    done = 0
    while done < num_commands:
        env.reset(seed=int(rng.integers(1 << 30)))
        story = env.story(env.state.game)
        words = sorted(about(story).words)
        theirs = start_theirs(story)
        seen, path = theirs.reset(), [story]
        assert of_theirs(seen) == of_ours(env), path
        kept = None
        for _ in range(min(250, num_commands - done)):
            if rng.random() < 0.02:
                kept = (env.snapshot(), theirs.copy(), list(path))
            elif kept is not None and rng.random() < 0.02:
                snap, copied, path = kept
                env.restore(snap)
                theirs, path = copied.copy(), [*path, "(back)"]
            command = draw(rng, env.legal_actions(env.state), words)
            path.append(command)
            seen, _, over = theirs.step(command)
            *_, terminated, _, info = env.step(command)
            assert info["action_is_valid"], (path, info)
            assert of_theirs(seen) == of_ours(env), path
            assert terminated is over, path
            done += 1
            if over:
                break
    return done
