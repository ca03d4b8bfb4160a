"""Surveys beside the loop: of what is known nothing is surveyed, and no trial waits for nothing."""

from __future__ import annotations

from typing import Any

from automl.admission.footprint import MemoryStructure
from automl.admission.requests import SurveyMemory
from automl.measure.survey.survey_result import InconclusiveSurvey, SurveyEndReason, SurveyResult
from automl.running.loop.messages import PlannedTrial, TrialSurveyed
from automl.trial import RequestSource
from tests.running.loop.simulated_machine import Plan
from tests.running.loop.simulator import World

GB = 1000**3
GPU = {"GPU-a": 24 * GB}
SMALL, LARGE = MemoryStructure((1.0, 2.0)), MemoryStructure((5.0, 2.0))


def test_params_in_which_surveys_that_agree_differ_are_not_surveyed_again() -> None:
    surveys = SurveyMemory()
    surveys.add({"width": 8, "lr": 0.1}, SMALL)
    assert surveys.find({"width": 8, "lr": 0.2}) is None
    surveys.add({"width": 8, "lr": 0.2}, SMALL)
    assert surveys.find({"width": 8, "lr": 0.3}) == SMALL
    assert surveys.find({"width": 9, "lr": 0.3}) is None


def test_a_param_that_turns_out_to_matter_is_surveyed_from_then_on() -> None:
    surveys = SurveyMemory()
    surveys.add({"depth": 1, "lr": 0.1}, SMALL)
    surveys.add({"depth": 1, "lr": 0.3}, SMALL)
    surveys.add({"depth": 2, "lr": 0.2}, SMALL)
    assert surveys.find({"depth": 3, "lr": 0.2}) == SMALL, "as far as anybody can tell"
    surveys.add({"depth": 9, "lr": 0.2}, LARGE)
    assert surveys.find({"depth": 3, "lr": 0.2}) is None
    assert surveys.find({"depth": 2, "lr": 0.7}) == SMALL


class Surveying(World):
    """Trials of unknown size that take a second to be surveyed, one at a time."""

    def __post_init__(self) -> None:
        self.asked: list[int] = []
        self.done: set[int] = set()
        super().__post_init__()

    def is_surveying(self, trial: PlannedTrial) -> bool:
        if trial.number in self.done:
            return False
        if trial.number not in self.asked:
            self.asked.append(trial.number)
            self._at(1.0, lambda: self._post(TrialSurveyed(trial, self.found(trial))))
        return True

    def _check_promise(self, execution: Any) -> None:
        """What they want is not in their plans."""

    def found(self, trial: PlannedTrial) -> Any:
        peak = self.plans[trial.number].peak_bytes
        return (
            SurveyResult(1, peak, peak, 3, SurveyEndReason.REPORTED)
            if peak
            else InconclusiveSurvey("no idea")
        )

    def take(self, surveyed: TrialSurveyed) -> None:
        self.done.add(surveyed.trial.number)
        if isinstance(surveyed.found, SurveyResult):
            structure = MemoryStructure((surveyed.found.reserved_bytes,), RequestSource.SURVEYED)
            self.loop.requests.survey(surveyed.trial.params, structure)


def test_what_was_surveyed_shares_a_device() -> None:
    """Trials of unknown size would each have the device to themselves."""
    planned = [Plan(None, 4 * GB, seconds=20.0)] * 3
    world = Surveying(GPU, planned, own_processes=True)
    world.run()
    assert world.asked == [0, 1, 2]
    assert world.now < 40, "side by side"


def test_those_behind_the_head_are_surveyed_so_that_they_may_pass_it() -> None:
    """The second waits for the first, which runs for long; the third would be over before."""
    planned = [Plan(None, n * GB, seconds=s) for n, s in ((9, 60.0), (12, 5.0), (2, 9.0))]
    world = Surveying(GPU, planned, own_processes=True, n_ahead=4)
    world.run()
    assert world.started == [0, 2, 1]


def test_what_cannot_be_surveyed_runs_alone() -> None:
    world = Surveying(GPU, [Plan(None, 0, seconds=5.0)] * 2, own_processes=True)
    world.run()
    assert world.now > 10
    assert world.attempts == {0: 1, 1: 1}
