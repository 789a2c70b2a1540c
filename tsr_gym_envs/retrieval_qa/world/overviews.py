"""Overviews: passages about several entities at once, which mention many names and answer few questions."""

import numpy as np

from tsr_gym_envs.retrieval_qa.world.facts import Entity, Knowledge
from tsr_gym_envs.retrieval_qa.world.grammar import Patterns

MAX_LISTED = 6
SURNAMES: Patterns = (
    "{name} is a surname. People who bear it include {list}. The name is thought to come from a farm that no longer "
    "exists, and its spelling was settled only when registers were printed. There is no evidence that all families of "
    "this name are related.",
    "The surname {name} is found in several countries. It is borne by {list}. Spellings vary in old church books, and "
    "clerks often copied it wrongly. Genealogists have tried to trace its bearers to a single village, so far without "
    "success.",
)
NATIVES: Patterns = (
    "This is a list of people who were born in {name}: {list}. It is not complete and follows no particular order. "
    "People who only moved to the place later in life are not included, even where local guides like to claim them as "
    "natives.",
    "Among the people born in {name} are {list}. A row of small plaques near the town hall carries some of the names. "
    "Others are remembered only in street signs, and a few have been forgotten altogether by those who live there "
    "today.",
)
LOCATED: Patterns = (
    "Sights and institutions of {name} include {list}. Most of them can be reached on foot from the central station. A "
    "combined ticket is sold in spring and autumn, when guides lead small groups through the older streets and explain "
    "what was rebuilt.",
    "Visitors to {name} are usually shown {list}. Opening hours change with the season, and some places are closed on "
    "Mondays. The local tourist office hands out a folding map on which a walk of about two hours is marked in red.",
)
PLACED = ("museum_city", "university_city", "festival_city", "paper_city")


def overviews(knowledge: Knowledge, num: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Return titles and texts of up to `num` overviews: of surnames, of natives of cities, of what cities have."""
    people = [entity for entity in knowledge.entities if entity.kind == "person"]
    surnames: dict[str, list[Entity]] = {}
    for person in people:
        surnames.setdefault(person.name.split()[-1], []).append(person)
    found = [(f"{name} (surname)", SURNAMES, name, bearers) for name, bearers in surnames.items() if len(bearers) > 1]
    for city in [entity for entity in knowledge.entities if entity.kind == "city"]:
        natives = _subjects(knowledge, city.number, ("born_in",))
        placed = _subjects(knowledge, city.number, PLACED)
        found += [(f"Natives of {city.name}", NATIVES, city.name, natives)] if len(natives) > 1 else []
        found += [(f"Sights of {city.name}", LOCATED, city.name, placed)] if len(placed) > 1 else []
    chosen = [found[number] for number in sorted(rng.permutation(len(found))[:num])]
    return [(title, _text(patterns, name, members, rng)) for title, patterns, name, members in chosen]


def _subjects(knowledge: Knowledge, number: int, relations: tuple[str, ...]) -> list[Entity]:
    facts = [fact for relation in relations for fact in knowledge.inverse.get((number, relation), ())]
    return [knowledge.entities[fact.subject] for fact in facts]


def _text(patterns: Patterns, name: str, members: list[Entity], rng: np.random.Generator) -> str:
    listed = [_listed(member) for member in members[:MAX_LISTED]]
    text = patterns[int(rng.integers(len(patterns)))]
    return text.format(name=name, list=f"{', '.join(listed[:-1])} and {listed[-1]}")


def _listed(entity: Entity) -> str:
    if entity.kind == "person":
        return f"the {entity.trade} {entity.name}"
    article = "" if entity.name.startswith("The ") else "the "
    return f"{article}{entity.name}" if entity.kind != "university" else entity.name
