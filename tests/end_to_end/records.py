"""What a study left behind: in its event log, in its Optuna journal, and in MLflow."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from automl.record.event_log import read_events
from automl.trial import (
    Event,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    Params,
    ParamsSuggested,
    PrunedOutcome,
    TooLargeOutcome,
    TrialEvent,
    TrialStarted,
)

if TYPE_CHECKING:
    import optuna
    from mlflow.entities import Run

FINAL = (FinishedOutcome, PrunedOutcome, TooLargeOutcome, FailedOutcome)


class Records:
    """A study in `folder/studies`, read anew at each call."""

    def __init__(
        self, folder: Path, study: str, uri: str | None = None, storage: str | None = None
    ) -> None:
        self.name = study
        self._storage = storage
        self.path = folder / "studies" / study
        self._uri = uri or f"sqlite:///{folder / 'mlflow.db'}"

    @classmethod
    def copied(cls, source: Path, folder: Path, study: str) -> Records:
        """A study of another folder, with all that is there, in one of a test's own."""
        shutil.copytree(source, folder, dirs_exist_ok=True)
        return cls(folder, study)

    # --- the event log ---

    def events(self) -> list[Event]:
        return [event for event, _ in read_events(self.path / "events.log")]

    def n_lines(self) -> int:
        """Events so far, for polling while a sweep writes."""
        log = self.path / "events.log"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def of_trial(self, number: int) -> list[TrialEvent]:
        return [e for e in self.events() if isinstance(e, TrialEvent) and e.trial == number]

    def params(self) -> dict[int, Params]:
        """Return those of each trial's last start, with what it asked for from there on."""
        params: dict[int, Params] = {}
        for event in self.events():
            if isinstance(event, TrialStarted):
                params[event.trial] = event.params
            elif isinstance(event, ParamsSuggested):
                params[event.trial] = {**params[event.trial], **event.params}
        return params

    def losses(self) -> dict[tuple[int, int], dict[str, float]]:
        """Metrics by (trial, step); a step logged twice fails the test."""
        reports = [event for event in self.events() if isinstance(event, MetricsReported)]
        steps = Counter((report.trial, report.step) for report in reports)
        assert max(steps.values(), default=1) == 1, f"logged more than once: {steps.most_common(3)}"
        return {(report.trial, report.step): dict(report.metrics) for report in reports}

    def outcomes(self) -> dict[int, TrialEvent]:
        """How each trial ended for good; one that ended twice fails the test."""
        ended = [event for event in self.events() if isinstance(event, FINAL)]
        outcomes: dict[int, TrialEvent] = {event.trial: event for event in ended}
        assert len(outcomes) == len(ended)
        return outcomes

    def interrupted(self) -> list[InterruptedOutcome]:
        return [event for event in self.events() if isinstance(event, InterruptedOutcome)]

    # --- Optuna ---

    def optuna_study(self) -> optuna.Study:
        """The study as Optuna's own backends read it, which optuna-dashboard uses too."""
        import optuna
        from optuna.storages.journal import JournalFileBackend

        if self._storage is not None:
            return optuna.load_study(study_name=self.name, storage=self._storage)
        backend = JournalFileBackend(str(self.path / "journal.log"))
        storage = optuna.storages.JournalStorage(backend)
        return optuna.load_study(study_name=self.name, storage=storage)

    def optuna_states(self) -> dict[int, str]:
        """State by trial number."""
        trials = self.optuna_study().get_trials(deepcopy=False)
        return {trial.number: trial.state.name for trial in trials}

    def optuna_values(self, number: int) -> dict[int, float]:
        """The trial's intermediate values by step."""
        return dict(self.optuna_study().get_trials(deepcopy=False)[number].intermediate_values)

    # --- MLflow ---

    def runs(self) -> list[Run]:
        """All runs of the study's experiment, its own included."""
        from mlflow import MlflowClient

        client = MlflowClient(self._uri)
        experiment = client.get_experiment_by_name(self.name)
        assert experiment is not None
        return list(client.search_runs([experiment.experiment_id], max_results=1000))

    def parent(self) -> Run:
        (run,) = (run for run in self.runs() if "automl.trial" not in run.data.tags)
        return run

    def trial_runs(self) -> dict[int, Run]:
        """The run of each trial of the study itself; a trial with two fails the test."""
        tags = [run.data.tags for run in self.runs()]
        refits = {each["automl.study"] for each in tags if each.get("automl.kind") == "refit"}
        own = [run for run in self.runs() if run.data.tags["automl.study"] not in refits]
        runs = [run for run in own if "automl.trial" in run.data.tags]
        by_number = {int(run.data.tags["automl.trial"]): run for run in runs}
        assert len(by_number) == len(runs), "a trial has more than one run"
        return by_number

    def steps(self, run: Run, metric: str) -> list[int]:
        """The steps at which MLflow has the metric, each as often as it has it."""
        from mlflow import MlflowClient

        history = MlflowClient(self._uri).get_metric_history(run.info.run_id, metric)
        return sorted(point.step for point in history)

    def artifacts(self, run: Run) -> set[str]:
        """Names of its checkpoints."""
        from mlflow import MlflowClient

        found = MlflowClient(self._uri).list_artifacts(run.info.run_id, "checkpoints")
        return {Path(info.path).name for info in found}

    def check_exact(self, n_trials: int, n_epochs: int, metrics: Sequence[str]) -> None:
        """A study of finished trials is whole: nothing missing, nothing twice, nothing more."""
        numbers = set(range(n_trials))
        assert set(self.outcomes()) == numbers
        assert all(isinstance(outcome, FinishedOutcome) for outcome in self.outcomes().values())
        assert set(self.losses()) == {(n, step) for n in numbers for step in range(n_epochs)}
        assert self.optuna_states() == dict.fromkeys(numbers, "COMPLETE")
        runs = self.trial_runs()
        assert set(runs) == numbers
        for number, run in runs.items():
            assert run.info.status == "FINISHED", f"trial {number}"
            assert run.info.run_name == f"trial-{number:05d}"
            for metric in metrics:
                assert self.steps(run, metric) == list(range(n_epochs)), f"trial {number}"
        assert self.parent().info.status == "FINISHED"
        assert self.parent().data.metrics["trials_finished"] == n_trials
