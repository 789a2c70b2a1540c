"""Counts its episodes in a class attribute and shows the count."""

from tests.tsr_gym.testing.worlds import Place, Walk


class CountsEpisodes(Walk):
    episodes = 0

    def initial(self, rng, options):
        CountsEpisodes.episodes += 1
        return Place(0, 3 + CountsEpisodes.episodes)


make = CountsEpisodes
