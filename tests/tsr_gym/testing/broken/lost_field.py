"""Has a state with a field that its constructor does not take, so that bytes lose it."""

from dataclasses import dataclass, field, replace

from tests.tsr_gym.testing.worlds import Walk


@dataclass(frozen=True)
class Place:
    position: int
    goal: int
    bonus: int = field(default=0, init=False)

    def __iter__(self):
        return iter((self.position, self.goal))


def with_bonus(place, bonus):
    place = replace(place)
    object.__setattr__(place, "bonus", bonus)
    return place


class CountsABonus(Walk):
    def initial(self, rng, options):
        return with_bonus(Place(*super().initial(rng, options)), 1)

    def transition(self, state, action, rng):
        step = super().transition(state, action, rng)
        after = with_bonus(Place(*step.state), state.bonus + 1)
        return step._replace(state=after, reward=step.reward + after.bonus)


make = CountsABonus
