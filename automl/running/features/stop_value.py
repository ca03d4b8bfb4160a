"""Stops asking for trials when the best value of the study is good enough."""

from __future__ import annotations

from automl.record.study_directory import study_command
from automl.running.features.feature import SweepFeature, SweepSite


class ValueRule(SweepFeature):
    """Says when a trial is as good as the user wants (`study.stop_value`). An edit may set it."""

    def __init__(self, site: SweepSite) -> None:
        self._study, self._prepared, self._say = site.study, site.prepared, site.say
        self._told: tuple[float, str] | None = None
        """The value that was reached, and the reason that was told."""

    @classmethod
    def make(cls, site: SweepSite) -> ValueRule:
        """Return the rule of the sweep."""
        return cls(site)

    def why_no_more(self) -> str | None:
        """Return, and say once, which trial has reached the value, or None."""
        study = self._prepared().config.study
        # Most studies set no value, and the leader is looked for under the study's lock.
        if study.stop_value is None or (leader := self._study.leader()) is None:
            return None
        number, value = leader
        if study.decided_direction.better(study.stop_value, value):
            return None
        if self._told is not None and self._told[0] == study.stop_value:
            return self._told[1]
        reason = (
            f"{study.leading_metric} {value:.5g} of trial {number} reaches "
            f"study.stop_value={study.stop_value:g}"
        )
        self._told = study.stop_value, reason
        go_on = study_command("resume", study)
        self._say(f"no more trials: {reason}; to go on: {go_on} study.stop_value=none")
        return reason
