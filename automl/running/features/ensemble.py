"""Makes the ensemble of a study from the models of its trials, and scores a preview of it
meanwhile.

A process of its own asks each model once while trials run, and writes `ensemble.pt` at the end from
the answers it has kept. The preview is for display only; no decision depends on it.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from automl.config import Config, Finish, ObjectiveKind, check_setting
from automl.errors import AutoMLError
from automl.execution.child_calls import AnsweringProcess, NoAnswerError, call_in_child
from automl.models.model_file import (
    EnsembleFileJob,
    EnsembleFileResult,
    EnsembleQuery,
    EnsembleQueryResult,
    EnsembleWorkerSetup,
)
from automl.record.signal_receiver import signal_receiver
from automl.record.study_directory import study_command
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.texts import Say, counted, fit_line
from automl.record.trial_record import TrialRecord
from automl.running.features.feature import (
    LONG_SWEEP_SECONDS,
    SweepEnding,
    SweepFeature,
    SweepSite,
)
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.trial_standings import RankedTrial
from automl.terminal.view import EnsembleRow, FamilyRow, SweepView
from automl.tracking.long_step import long_step
from automl.trial import FAMILY_PARAM, CheckpointKind, EnsembleBuilt, ProcessEntry

WRITE = "automl.models.mean_model_file:write_ensemble"
MIN_ENSEMBLE_MODELS = 2
MAX_MODELS = 100
"""Largest number of models considered, the best of the study. Each is read, and evaluated on all
rows."""
N_OF_EACH = 5
"""Number of models of each family that are considered even if others are better. Models that make
different errors help each other more."""
IMPORTANCE_SECONDS, QUICK_SECONDS = 20.0, 1.0
"""About the longest times to find out which columns matter, with pictures and without."""
PICTURES_FRACTION = 0.1
"""The fraction of a sweep's time limit that is kept for the ensemble and its pictures, at most."""
MAX_RANKED_TRIALS = 1_000
"""Number of best trials searched for models of each family."""


def write_in_child(job: EnsembleFileJob) -> EnsembleFileResult:
    result = call_in_child(ProcessEntry(WRITE, job))
    assert isinstance(result, EnsembleFileResult)
    return result


def builder_target(prepared: PreparedStudy) -> str | None:
    target = prepared.plan.family.users_target
    return None if target is None else target[1]


def ensemble_candidates(ranking: Sequence[TrialRecord] | Sequence[RankedTrial]) -> list[int]:
    """Return the trials whose models an ensemble is chosen from, the best first."""
    n_of: Counter[object] = Counter()
    firsts = set()
    for trial in ranking:
        n_of[family := trial.params.get(FAMILY_PARAM)] += 1
        if n_of[family] <= N_OF_EACH:
            firsts.add(trial.number)
    others = [trial.number for trial in ranking if trial.number not in firsts]
    chosen = {*firsts, *others[: max(0, MAX_MODELS - len(firsts))]}
    return [trial.number for trial in ranking if trial.number in chosen]


def make_ensemble(
    prepared: PreparedStudy,
    path: Path,
    record: StudyRecord,
    *,
    draws: bool,
    say: Say,
    left_seconds: float = math.inf,
    write: Callable[[EnsembleFileJob], EnsembleFileResult] = write_in_child,
) -> EnsembleBuilt | None:
    """Write `ensemble.pt` into the study at `path`. Return None unless two models can be joined.

    The event has the findings on which columns matter, unless the study wants no pictures.
    `draws`: the findings are drawn as pictures, too, as they are where some pictures exist.
    `left_seconds`: what is left of the sweep's time limit.

    Raises AutoMLError for models that cannot be read.
    """
    dataset, files = prepared.dataset, StudyFiles(path)
    if dataset is None:
        return None
    ranked = ensemble_candidates(record.ranking()[:MAX_RANKED_TRIALS])
    models = {n: files.checkpoint(n, CheckpointKind.BEST) for n in ranked}
    model_paths = {n: str(file) for n, file in models.items() if file.exists()}
    if len(model_paths) < MIN_ENSEMBLE_MODELS:
        return None
    finds = prepared.config.study.finishes_with(Finish.plots)
    draws = finds and (draws or files.plots.exists())
    find_seconds = importance_seconds(left_seconds) if draws else QUICK_SECONDS
    job = EnsembleFileJob(
        str(files.ensemble),
        model_paths,
        dataset,
        path.name,
        build=builder_target(prepared),
        importance_seconds=find_seconds if finds else None,
        plots=str(files.plots) if draws else None,
        metric=prepared.config.study.leading_metric,
    )
    drawing = " and drawing what it found" * draws
    with long_step(f"choosing an ensemble from {counted(len(model_paths), 'model')}{drawing}", say):
        written = write(job)
    if written.not_drawn:
        say(f"not drawn: {fit_line(written.not_drawn)}")
    if written.note:
        say(written.note)
    return EnsembleBuilt(
        time.time(),
        len(dataset.judged),
        written.members,
        written.scores,
        written.rows_per_second,
        written.best_trial_scores,
        written.intervals,
        written.findings,
    )


def importance_seconds(left_seconds: float) -> float:
    """Return how long it may take to find out which columns matter, so that time is left for the
    pictures."""
    return min(IMPORTANCE_SECONDS, max(QUICK_SECONDS, left_seconds / 2))


def kept_pictures_seconds(limit_seconds: float) -> float:
    """Return the seconds of a sweep's time limit that are kept for the ensemble and its pictures;
    0 for a sweep that is too short for pictures."""
    kept = min(IMPORTANCE_SECONDS, PICTURES_FRACTION * limit_seconds)
    return kept if limit_seconds >= LONG_SWEEP_SECONDS else 0.0


def refuse_user_models(config: Config) -> None:
    """Raise ConfigError for a study whose models only its author knows."""
    kind = config.objective.kind
    check_setting(
        kind is ObjectiveKind.builtin,
        "objective",
        kind.name,
        "the models of such a study are not known; an ensemble is of the built-in training's.",
    )
    check_setting(
        not config.study.metrics.are_several,
        "study.metric",
        ", ".join((config.study.leading_metric, *config.study.metrics.more_names)),
        "an ensemble is chosen by one metric, so that it is on no front: take a trial of the "
        "front, such as which=knee.",
    )


def ensemble_score(scores: Mapping[str, float], metric: str) -> tuple[str, float]:
    """Return name and value of the study's metric, or the loss if the metric is not one of ours."""
    name = metric.removeprefix("val_")
    known = name if name in scores else "loss"
    return known, scores[known]


def ensemble_lines(
    event: EnsembleBuilt, record: StudyRecord, choice: str | None, path: Path
) -> list[str]:
    """Return the lines about the ensemble for the end of the sweep."""
    known, score = ensemble_score(event.scores, record.metric.name)
    on = f"{counted(event.n_rows, 'row')} that none of them trained on"
    best = record.best()
    than = ""
    if best is not None:
        # The value of a trial of several divisions is their mean.
        own = event.alone.get(best.number, {})
        name, theirs = (known, own[known]) if known in own else (record.metric.name, best.value)
        than = f"; the best trial's {name} is {theirs:.5g}"
    value = f"{known} {score:.5g} on {on}{than}"
    where = os.path.relpath(StudyFiles(path).ensemble)
    plots = StudyFiles(path).plots
    found = [f"what it found: {os.path.relpath(plots)}"] if plots.exists() else []
    return [f"{_named(event, record, choice)}: {value}", f"ensemble: {where}", *found]


def _named(event: EnsembleBuilt, record: StudyRecord, choice: str | None) -> str:
    first, *others = event.members
    if not others:
        return f"ensemble of trial {first} alone, which no other makes better"
    text = f"ensemble of {counted(len(event.members), 'model')}"
    if choice is None:
        return text
    kinds = Counter(record.trials[n].params.get(choice) for n in event.members)
    return f"{text} ({', '.join(f'{n} {kind}' for kind, n in kinds.most_common())})"


GROW = "automl.models.mean_model_file:EnsembleWorker"
MIN_PAUSE_SECONDS = 5.0
"""Shortest pause between two previews of the ensemble."""
MAX_TIME_FRACTION = 0.05
"""Largest fraction of the time spent on making the preview again. New models are not counted, since
they are evaluated anyway."""
MAX_NUMBERS = 2_000_000
"""Most numbers that a model may give for all rows (16 MB). Above it there is no preview."""

logger = logging.getLogger(__name__)


class GrowingEnsemble:
    """The preview of the ensemble of one sweep. For the main thread; it has to be closed."""

    def __init__(self, prepared: PreparedStudy, path: Path) -> None:
        # An edit of the study changes none of them.
        self._choice, self._dataset = prepared.choice, prepared.dataset
        self._builder = builder_target(prepared)
        self._metric = prepared.config.study.leading_metric
        self._files = StudyFiles(path)
        self._process: AnsweringProcess | None = None
        self.can_grow = can_preview_ensemble(prepared)
        """Whether there is a preview. Otherwise the ensemble is made only at the end."""
        self._asked: Sequence[int] = ()
        self._not_before_seconds = 0.0
        self._grown: EnsembleQueryResult | None = None

    def look(self, ranking: Sequence[RankedTrial], now_seconds: float) -> None:
        """Take an answer, and ask again if more trials have finished. Never waits."""
        try:
            self._take(now_seconds)
            self._ask(ranking, now_seconds)
        except (NoAnswerError, AutoMLError) as error:  # the end tries again
            logger.info("the ensemble is made at the end alone: %r", error)
            self.can_grow = False
            self.close()

    def row(self, ranking: Sequence[RankedTrial], metric: str) -> EnsembleRow | None:
        """Return the score of the preview, or None before the first one."""
        if self._grown is None or not self._grown.members or self._choice is None:
            return None
        return ensemble_row(self._grown, ranking, metric, self._choice)

    def write(self, job: EnsembleFileJob) -> EnsembleFileResult:
        if self._process is not None:
            try:
                result = self._process.answer(job)
            except NoAnswerError:
                logger.info("the process of the ensemble has died; another makes it")
            else:
                assert isinstance(result, EnsembleFileResult)
                return result
        return write_in_child(job)

    def close(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _take(self, now_seconds: float) -> None:
        found = None if self._process is None else self._process.poll()
        if isinstance(found, EnsembleQueryResult):
            self._grown = found
            self._not_before_seconds = now_seconds + rebuild_wait_seconds(found.seconds)

    def _ask(self, ranking: Sequence[RankedTrial], now_seconds: float) -> None:
        busy = self._process is not None and self._process.busy
        if busy or now_seconds < self._not_before_seconds:
            return
        numbers = ensemble_candidates(ranking)
        if numbers == self._asked or len(numbers) < MIN_ENSEMBLE_MODELS:
            return
        self._asked = numbers
        paths = {n: self._files.checkpoint(n, CheckpointKind.BEST) for n in numbers}
        models = {n: str(path) for n, path in paths.items() if path.exists()}
        if len(models) < MIN_ENSEMBLE_MODELS:
            return
        if self._process is None:
            assert self._dataset is not None, "only a table has a preview of its ensemble"
            growing = EnsembleWorkerSetup(self._dataset, self._builder, self._metric)
            self._process = AnsweringProcess(ProcessEntry(GROW, growing))
        self._process.ask(EnsembleQuery(models))


def can_preview_ensemble(prepared: PreparedStudy) -> bool:
    """Return whether the sweep ends with an ensemble whose answers are few enough to be kept in
    memory."""
    dataset = prepared.dataset
    if dataset is None or prepared.choice is None or not prepared.purpose.stands_alone:
        return False
    if prepared.config.study.metrics.are_several:
        return False
    is_small = len(dataset.judged) * dataset.n_outputs <= MAX_NUMBERS
    return is_small and prepared.config.study.finishes_with(Finish.ensemble)


def rebuild_wait_seconds(took_seconds: float) -> float:
    return max(MIN_PAUSE_SECONDS, took_seconds / MAX_TIME_FRACTION)


def ensemble_row(
    grown: EnsembleQueryResult | EnsembleBuilt,
    ranking: Sequence[RankedTrial] | Sequence[TrialRecord],
    metric: str,
    choice: str,
) -> EnsembleRow:
    """Return the score by the study's metric, and the weight of each family, the best family
    first."""
    best: dict[str, float] = {}
    family: dict[int, str] = {}
    for trial in ranking:
        assert trial.value is not None, "trials without a value have no rank"
        name = family[trial.number] = str(trial.params.get(choice))
        best.setdefault(name, trial.value)
    weights: Mapping[str, float] = {
        name: sum(w for n, w in grown.members.items() if family.get(n) == name) for name in best
    }
    name, value = ensemble_score(grown.scores, metric)
    rows = tuple(FamilyRow(name, best[name], weights[name]) for name in best)
    return EnsembleRow(name, value, len(grown.members), rows)


class SweepEnsemble(SweepFeature):
    """Shows the preview of the ensemble while a sweep over several families goes on, and makes the
    ensemble at its end.

    If the ensemble cannot be made, the trials are still whole, so the reason is only printed.
    """

    def __init__(self, site: SweepSite) -> None:
        self._site = site
        self._growing = GrowingEnsemble(site.prepared(), site.files.path)
        self._lines: Sequence[str] = ()

    @classmethod
    def make(cls, site: SweepSite) -> SweepEnsemble | None:
        """Return the feature. None for a sweep of one family, for a final training and where no
        ensemble is wanted."""
        prepared = site.prepared()
        is_search = prepared.choice is not None and prepared.purpose.stands_alone
        wanted = prepared.config.study.finishes_with(Finish.ensemble)
        return cls(site) if is_search and wanted else None

    def kept_seconds(self) -> float:
        study = self._site.prepared().config.study
        if study.timeout_seconds is None or not study.finishes_with(Finish.plots):
            return 0.0
        return kept_pictures_seconds(study.timeout_seconds)

    def look(self, view: SweepView) -> SweepView:
        """Bring the preview up to date, and show it."""
        if view.ended is not None or not self._growing.can_grow:
            return view
        ranking = self._site.study.ranking(MAX_RANKED_TRIALS)
        self._growing.look(ranking, time.monotonic())
        return replace(view, ensemble=self._growing.row(ranking, view.metric))

    def end(self, ending: SweepEnding) -> None:
        """Make the ensemble of a sweep that came to its end."""
        try:
            if ending.has_result:
                self._join_models(ending)
        finally:
            self.close()  # what follows needs the memory of the preview's process

    def _join_models(self, ending: SweepEnding) -> None:
        site, prepared = self._site, self._site.prepared()
        if prepared.config.study.metrics.are_several:
            self._lines = ["no ensemble was made: it would be chosen by one metric alone"]
            return
        try:
            with signal_receiver().interruptible():
                event = make_ensemble(
                    prepared,
                    ending.path,
                    ending.record,
                    draws=site.clock.is_long(self.kept_seconds()),
                    say=site.say,
                    left_seconds=self._left_seconds(),
                    write=self._growing.write,
                )
        except (AutoMLError, KeyboardInterrupt) as error:
            command = study_command("evaluate", prepared.config.study)
            self._lines = [
                f"no ensemble was made ({error}); make it with: {command} which=ensemble"
            ]
            return
        if event is None:
            return
        site.log.append(event)
        ending.joined = event
        ending.answer["ensemble"] = replace(event, intervals={}, findings=None)
        self._lines = ensemble_lines(event, ending.record, prepared.choice, ending.path)

    def _left_seconds(self) -> float:
        """Return what is left of the sweep's time limit; infinite without one."""
        limit = self._site.prepared().config.study.timeout_seconds
        end_seconds = math.inf if limit is None else self._site.clock.end_seconds(limit)
        return end_seconds - time.monotonic()

    def closing(self, ending: SweepEnding) -> Sequence[str]:
        return self._lines

    def close(self) -> None:
        self._growing.close()
