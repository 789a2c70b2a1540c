"""Says what time it is."""

import datetime

from tests.tsr_gym.testing.worlds import Walk


class SaysTheHour(Walk):
    def observe(self, state):
        return f"{super().observe(state)} It is {datetime.datetime.now():%d.%m. %H} o'clock."


make = SaysTheHour
