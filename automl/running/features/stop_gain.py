"""Stops asking for trials when as many again would hardly improve the result."""

from __future__ import annotations

import time

from automl.record.texts import duration_text
from automl.running.features.feature import SweepFeature, SweepSite
from automl.search.gain_forecast import expected_gain


class GainRule(SweepFeature):
    """Says when further trials are not worth their cost (`study.stop_gain`)."""

    def __init__(self, site: SweepSite, least_gain: float, metric: str) -> None:
        """`least_gain` is what as many trials again have to gain of the study's `metric`."""
        self._study, self._log, self._say = site.study, site.log, site.say
        self._least_gain, self._metric = least_gain, metric
        self._next_n_keys = 0
        self._reason: str | None = None

    @classmethod
    def make(cls, site: SweepSite) -> GainRule | None:
        """Return the rule of the sweep, or None if nobody has asked for one."""
        study = site.prepared().config.study
        if study.stop_gain is None:
            return None
        return cls(site, study.stop_gain, study.leading_metric)

    def why_no_more(self) -> str | None:
        """Return, and say, why no more trials are worth it, or None.

        The values are looked at each time that there are a twentieth more. Once no more trials are
        worth it, this holds for the rest of the sweep.
        """
        if self._reason is not None:
            return self._reason
        keys = self._study.pauses.comparable_keys()
        if len(keys) < self._next_n_keys:
            return None
        self._next_n_keys = len(keys) + max(1, len(keys) // 20)
        gain = expected_gain(keys)
        if gain is None or gain >= self._least_gain:
            return None
        seconds = self._log.device_seconds(time.time())
        self._reason = (
            f"as many trials again ({len(keys)}, {duration_text(seconds)} of device time) are "
            f"expected to improve {self._metric} by {gain:.2g}, less than "
            f"study.stop_gain={self._least_gain:g}"
        )
        self._say(f"no more trials: {self._reason}")
        return self._reason
