"""Objectives written for Optuna: their trials' questions, answered in the main thread.

Until it is known what such an objective asks for, its trials run one at a time: each is drawn with
what the ones before it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from automl.admission.refusals import AdmissionRefusal
from automl.errors import ConfigError
from automl.running.loop.messages import AdmittedExecution, QuestionAsked, RunningTrial
from automl.search.discovered_space import N_ALIKE_TRIALS
from automl.search.param_suggestions import ParamSuggester
from automl.search.study import Study
from automl.trial import (
    ParamAnswer,
    ParamQuestion,
    ParamRefusal,
    ParamsNotSuggested,
    Reply,
    SweepStopping,
)

LEARNING_SPACE = AdmissionRefusal(
    "waiting: what the objective asks for is found out by one trial at a time", for_devices=False
)


class NoParamQuestions:
    """For objectives that are given all their params."""

    one_at_a_time = False

    def answer(
        self,
        asks: QuestionAsked,
        running: Mapping[int, RunningTrial],
        executions: Mapping[int, AdmittedExecution],
    ) -> None:
        raise AssertionError(f"{asks.question}: no such objective asks")

    def found(self, *, at_end: bool = False) -> Iterator[str]:
        """Nothing is."""
        yield from ()


@dataclass
class ParamQuestions:
    """For objectives that ask. For the main thread."""

    study: Study
    suggesting: ParamSuggester
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        found = self.suggesting.found
        self._said = found.shape() if found.is_stable else None
        """What was printed, by this sweep or one before."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether no trial may start while another runs."""
        return not self.suggesting.found.is_stable

    def answer(
        self,
        asks: QuestionAsked,
        running: dict[int, RunningTrial],
        executions: Mapping[int, AdmittedExecution],
    ) -> None:
        """Answer a running trial, which knows its new param from now on. Raises StorageError."""
        number = asks.question.trial
        try:
            reply = self._reply(asks.question)
        except ConfigError as error:
            reply = ParamRefusal(str(error))
        except BaseException:
            asks.reply(SweepStopping())  # it waits, and will be taken over with the study
            raise
        self._know_params(number, running, executions)
        asks.reply(reply)
        for line in self.suggesting.differences():
            self.say(line)

    def found(self, *, at_end: bool = False) -> Iterator[str]:
        """What was found, as YAML, a line each: once it is known, and at the end where it has grown
        since or was not known before."""
        found = self.suggesting.found
        is_news = found.shape() != self._said if at_end else found.is_stable and self._said is None
        if not is_news or not found.params:
            return
        self._said = found.shape()
        how = f"seen alike in {N_ALIKE_TRIALS} trials" if found.is_stable else "so far"
        yield f"what the objective asks for, {how}:"
        yield from (f"  {line}" for line in found.lines())

    def _reply(self, question: ParamQuestion | ParamsNotSuggested) -> Reply:
        if isinstance(question, ParamQuestion):
            return ParamAnswer(self.study.suggest(question))
        self.study.not_suggested(question)
        return ParamAnswer()

    def _know_params(
        self,
        number: int,
        running: dict[int, RunningTrial],
        executions: Mapping[int, AdmittedExecution],
    ) -> None:
        """What is learned of the trial, and what it asks for should it run again, goes by them."""
        if number not in running:
            return
        waiting = running[number].waiting
        trial = replace(waiting.trial, params=self.study.params(number))
        waiting = replace(waiting, trial=trial)
        running[number] = replace(running[number], waiting=waiting)
        for execution in executions.values():
            if number in execution.members:
                execution.members[number] = waiting
