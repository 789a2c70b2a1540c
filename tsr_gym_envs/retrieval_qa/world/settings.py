"""WorldSettings: how large a generated world is, and what makes its questions hard."""

from dataclasses import dataclass

from tsr_gym.errors import ConfigError

MIN_ENTITIES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """The settings of a generated world; equal settings give the same bytes on every machine.

    Attributes:
        seed: Any integer.
        num_entities: People, places, works and so on; each has a passage. There are names for about 10,000.
        num_questions: Questions of all splits together.
        hops: How often a chain of 1, 2, 3 and 4 hops is asked for, relative to each other.
        p_comparison: Probability that a question compares two entities and asks on about one of them.
        p_yes_no: Probability that a question is answered by yes or no.
        p_alias: Probability that an entity that has an alias is spoken of by it, in passages and in questions.
        p_lookalike: Probability that a name is made from parts of another: people with one surname, a film with the
            title of its book.
        p_backlink: Probability that a passage also states a fact of another's subject, which saves a hop.
        overviews: Passages about several entities at once, such as all people with one surname, per 100 entities.
        splits: Tenths of the questions in train, valid and test.
    """

    seed: int = 0
    num_entities: int = 3000
    num_questions: int = 1500
    hops: tuple[float, float, float, float] = (0.15, 0.4, 0.3, 0.15)
    p_comparison: float = 0.1
    p_yes_no: float = 0.1
    p_alias: float = 0.25
    p_lookalike: float = 0.3
    p_backlink: float = 0.25
    overviews: float = 8.0
    splits: tuple[int, int, int] = (8, 1, 1)

    def __post_init__(self) -> None:
        if self.num_entities < MIN_ENTITIES or self.num_questions < 1:
            raise ConfigError(
                f"wanted num_entities >= {MIN_ENTITIES} and num_questions >= 1, got {self.num_entities} and "
                f"{self.num_questions}"
            )
        for name, value in (
            ("p_comparison", self.p_comparison),
            ("p_yes_no", self.p_yes_no),
            ("p_alias", self.p_alias),
            ("p_lookalike", self.p_lookalike),
            ("p_backlink", self.p_backlink),
            ("p_comparison + p_yes_no", self.p_comparison + self.p_yes_no),
        ):
            if not 0 <= value <= 1:
                raise ConfigError(f"wanted {name} between 0 and 1, got {value}")
        if len(self.hops) != 4 or min(self.hops) < 0 or not sum(self.hops):
            raise ConfigError(f"wanted four hops >= 0 that are not all 0, got {self.hops}")
        if not 0 <= self.overviews <= 100:
            raise ConfigError(f"wanted overviews between 0 and 100, got {self.overviews}")
        if len(self.splits) != 3 or min(self.splits) < 0 or sum(self.splits) != 10:
            raise ConfigError(f"wanted splits of three tenths that sum to 10, got {self.splits}")
