"""What is known of a game, and where it stands, as immutable values."""

from typing import NamedTuple

from tsr_gym_envs.zmachine.memory import Memory


class About(NamedTuple):
    """What does not change in a game.

    Attributes:
        objective: What it asks for.
        max_points: How many points there are.
        walkthrough: Commands that win it, as TextWorld wrote them.
        words: The words that it knows.
    """

    objective: str
    max_points: int
    walkthrough: tuple[str, ...]
    words: frozenset[str]


class Scene(NamedTuple):
    """Where a game stands.

    Attributes:
        memory: The interpreter's.
        facts: What is true, as TextWorld writes it, in ascending order.
        feedback: What the game said last.
        description: The room as it is described.
        inventory: What the player carries, as it is described.
        points: Points so far.
        quests: For each quest that has to be completed, whether it was at some time.
        progress: Mean over the quests of the share of their conditions that hold, 1 for those that were completed.
        ended: ``"won"``, ``"lost"``, ``"halted"`` or "".
        done: The commands so far that changed the facts, as TextWorld writes them.
    """

    memory: Memory
    facts: tuple[str, ...]
    feedback: str
    description: str
    inventory: str
    points: int
    quests: tuple[bool, ...]
    progress: float
    ended: str
    done: tuple[str, ...]


class TextWorldState(NamedTuple):
    """Where an episode stands.

    Attributes:
        game: Number of the game, which is its seed.
        scene: Where that game stands.
    """

    game: int
    scene: Scene
