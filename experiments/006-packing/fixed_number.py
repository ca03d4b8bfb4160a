"""What is done without admission: a fixed number of trials on each GPU, or a fixed fraction of one
for each trial, which is the same number and, as in Ray, no better chance for who ran out."""

from __future__ import annotations

from collections.abc import Sequence

from virtual_machine import RAN_OUT_SECONDS, Machine
from worlds import Setting, Trial

from automl.trial import DeviceId


class Fixed(Machine):
    """So many per GPU whatever they take; who runs out goes to the end of the line, then alone."""

    def __init__(self, setting: Setting, trials: Sequence[Trial], seed: int, k: int) -> None:
        super().__init__(setting, trials, seed)
        self.n_lost = 0
        self._k, self._line = k, list(range(len(trials)))[::-1]
        self._again: list[int] = []
        self._n_left = len(trials)

    def run(self) -> Fixed:
        self._fill()
        while self._n_left:
            self.step()
        return self

    def ended(self, number: int, device: DeviceId) -> None:
        self._clear(number, device)
        self._n_left -= 1
        self._fill()

    def ran_out(self, number: int, device: DeviceId) -> None:
        self._clear(number, device)
        self._again.append(number)
        self._fill()

    def _clear(self, number: int, device: DeviceId) -> None:
        self.end(number, device)
        self.kept[device].clear()

    def _fill(self) -> None:
        while self._line:
            device = min(self.on, key=lambda d: len(self.on[d]))
            if len(self.on[device]) >= self._k:
                return
            self.begin(self._line.pop(), device)
        for device in [d for d, here in self.on.items() if not here]:
            if self._again:
                self.begin(self._again.pop(), device, again=RAN_OUT_SECONDS)


class Fraction(Fixed):
    """Each trial is given 1/k of a GPU; who runs out is tried again in the same way, three times
    in all, and then lost."""

    _MOST_TRIES = 3

    def __init__(self, setting: Setting, trials: Sequence[Trial], seed: int, k: int) -> None:
        super().__init__(setting, trials, seed, k)
        self._n_tries = [1] * len(trials)

    def ran_out(self, number: int, device: DeviceId) -> None:
        self._clear(number, device)
        if self._n_tries[number] < self._MOST_TRIES:
            self._n_tries[number] += 1
            self._line.insert(0, number)
        else:
            self.n_lost += 1
            self._n_left -= 1
        self._fill()

    def _fill(self) -> None:
        while self._line:
            device = min(self.on, key=lambda d: len(self.on[d]))
            if len(self.on[device]) >= self._k:
                return
            number = self._line.pop()
            self.begin(number, device, RAN_OUT_SECONDS * (self._n_tries[number] > 1))
