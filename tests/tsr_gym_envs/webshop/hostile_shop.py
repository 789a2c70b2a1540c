"""A catalogue of shirts in which texts and options try to be markup, for the tests of the web site."""

import gymnasium as gym

from tests.tsr_gym_envs.webshop.small_files import item, write_files
from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue

EVIL = "<script>document.title='run'</script><img src=x onerror=\"alert('run')\">\"'>&amp;"
NUM_SHIRTS = 25
BOLD = "<script>alert(1)<b onclick=alert(1)>"
# The product that everything hostile stands in, and its colours; the shop writes options in lower case.
TARGET = "B000000000"
COLORS = ("red", 'blue" onclick="alert(1)', BOLD, "javascript:alert(1)", "a&b=c#d?e%2f", "🙂")


def hostile_catalogue(folder):
    """Write and import the catalogue, and return its folder."""
    options = {"color": [{"value": color} for color in COLORS], f"size {EVIL}": [{"value": "s"}, {"value": "m"}]}
    bullets = [EVIL, "javascript:alert(1)"]
    target = {"name": f"Soft Shirt {EVIL}", "full_description": EVIL, "small_description": bullets}
    items = [item(0, **target, customization_options=options, product_category=EVIL, category=EVIL, query=EVIL)]
    items += [item(number, name=f"Shirt Number {number}") for number in range(1, NUM_SHIRTS)]
    entry = {"attributes": ["soft", EVIL], "instruction": f"Find me {EVIL}", "instruction_attributes": ["soft"]}
    entries = {record["asin"]: {"attributes": ["soft"]} for record in items} | {TARGET: entry}
    return import_catalogue(write_files(folder / "files", items, entries), folder / "store").path


def hostile_env(catalogue, **settings):
    return gym.make("tsr/WebShop-v0", catalogue=str(catalogue), **{"max_turns": None, **settings})


def goal_of(env, color):
    """Return the number of a goal that wants this colour."""
    return next(number for number, goal in enumerate(env.unwrapped.goals) if goal["goal_options"]["color"] == color)


def agents_tree(env, seed, options, moves):
    """Return the tree of an agent that takes the (page, action) moves, going back to the page before each."""
    agent = TreeSearchWrapper(env)
    agent.reset(seed=seed, options=options)
    for page, action in moves:
        if agent.cursor != page:
            agent.goto(page)
        agent.step(action)
    return agent.tree
