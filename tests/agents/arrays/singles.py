"""Twins of the searches in arrays: the same searches in plain Python, with one environment and a list of nodes.

Nothing here is compiled or vectorised, and environments are restored with seeds as any single environment is.
"""

import math

import gymnasium as gym
import numpy as np

POLICY, DICE, TIE = 1 << 32, 2 << 32, 3 << 32
MASK = (1 << 64) - 1


def derive(seed, number):
    """Return splitmix64's output, in Python's own integers."""
    word = (seed + (number + 1) * 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & MASK
    return word ^ word >> 31


def batch_of(name, num_envs, seed=0, **settings):
    """Return a batch at its tasks."""
    env = gym.make_vec(f"tsr/{name}-v0", num_envs=num_envs, **settings)
    env.reset(seed=seed)
    return env


def single(name, seed, **settings):
    """Return the environment that a batch has at a place, alone."""
    env = gym.make(f"tsr/{name}-v0", action_type="discrete", disable_env_checker=True, **settings).unwrapped
    env.reset(seed=seed)
    return env


def observed(env):
    """Return the present observation of a single environment."""
    return env.observe(env.state)


class Twin:
    """One environment and the nodes that were reached with it.

    Each node is a dict: parent, action, reward, score, terminated, truncated, snapshot, observation, seed.
    """

    def __init__(self, env, noise):
        self.env, self.noise = env, noise
        self.nodes = [{"parent": -1, "done": False, "snapshot": env.snapshot(), "observation": observed(env)}]

    def try_action(self, parent, action, dice):
        """Add and return a node; `dice` is a seed."""
        self.env.restore(self.nodes[parent]["snapshot"], seed=None if self.noise == "same" else dice)
        observation, reward, terminated, truncated, _ = self.env.step(action)
        node = {
            "parent": parent, "action": action, "reward": reward, "terminated": terminated, "truncated": truncated,
            "done": terminated or truncated, "snapshot": self.env.snapshot(), "observation": observation,
        }  # fmt: skip
        self.nodes.append(node)
        return node


def twin_beam(env, choose, *, width, branching, depth, seed, noise="fresh", score=None, score_of="turn"):
    """Return the twin and the indices of the beam at the end, best first.

    `choose` gives the action for an observation, a turn, a candidate's number and a seed; `score` the score for an
    observation and a reward.
    """
    twin = Twin(env, noise)
    twin.nodes[0] |= {"seed": seed, "merit": 0.0, "return": 0.0}
    members = [0]

    def rank(index):
        node = twin.nodes[index]
        return -round(node["merit"] * 1e9), derive(node["seed"], TIE)

    for turn in range(depth):
        growing = [index for index in members if not twin.nodes[index]["done"]]
        if not growing:
            break
        grown = []
        for index in growing:
            above = twin.nodes[index]
            for number in range(branching):
                own = derive(above["seed"], number)
                action = choose(above["observation"], turn, number, derive(own, POLICY))
                node = twin.try_action(index, action, derive(above["seed"] if noise == "common" else own, DICE))
                rated = node["reward"] if score is None else score(node["observation"], node["reward"])
                node |= {"seed": own, "score": rated, "return": above["return"] + node["reward"]}
                node["merit"] = rated + (above["merit"] if score_of == "turn" else 0.0)
                grown.append(len(twin.nodes) - 1)
        ended = [index for index in members if twin.nodes[index]["done"]]
        members = sorted(ended + grown, key=rank)[:width]
    return twin, members


def twin_puct(env, *, simulations, seed, evaluate, c_init=1.25, c_base=19652, noise="fresh", num_actions=4):
    """Return the twin, whose nodes know their visits and values, and the visits of the root's actions."""
    twin = Twin(env, noise)
    priors, value = evaluate(twin.nodes[0]["observation"])
    twin.nodes[0] |= {"place": 0, "priors": priors, "children": {}, "count": 1, "value": value, "visits": [0] * 4}

    def bound(node, action, luck):
        """MuZero's rule as mctx has it, with a little luck against ties."""
        child = node["children"].get(action)
        worths = [node["value"], *(child["reward"] + child["value"] for child in node["children"].values())]
        span = max(max(worths) - min(worths), 1e-8)
        quality = 0.0 if child is None else (child["reward"] + child["value"] - min(worths)) / span
        weight = c_init + math.log((node["count"] + c_base + 1) / c_base)
        explore = math.sqrt(node["count"]) * weight * node["priors"][action] / (node["visits"][action] + 1)
        chance = derive(luck, node["place"] * num_actions + action) >> 11
        return quality + explore + 1e-7 * chance / 2**53

    for simulation in range(1, simulations + 1):
        luck, node, path = derive(seed, TIE + simulation), twin.nodes[0], []
        while not node["done"]:
            action = max(range(num_actions), key=lambda one: bound(node, one, luck))
            path.append((node, action))
            if action not in node["children"]:
                dice = derive(derive(seed, DICE + node["place"]), 0 if noise == "common" else action)
                child = twin.try_action(twin.nodes.index(node), action, dice)
                priors, value = evaluate(child["observation"])
                child |= {"place": simulation, "priors": priors, "children": {}, "count": 0, "visits": [0] * 4}
                child["value"], child["raw"] = 0.0, 0.0 if child["done"] else value
                node["children"][action], node = child, child
                break
            node = node["children"][action]
        worth = node["raw"] if node.get("count") == 0 else 0.0
        for above, action in [*reversed(path), (None, None)]:
            node["value"] = (node["value"] * node["count"] + worth) / (node["count"] + 1)
            node["count"] += 1
            if above is not None:
                worth += node["reward"]
                above["visits"][action] += 1
                node = above
    return twin, twin.nodes[0]["visits"]


def random_choice(observation, turn, number, seed):
    """Choose by the seed alone."""
    return (seed >> 33) * 4 >> 31


def randomly(batch, request):
    """Choose as `random_choice` does, in arrays."""
    return ((request.seeds >> np.uint64(33)) * np.uint64(4) >> np.uint64(31)).astype(np.int64)
