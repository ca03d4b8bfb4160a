"""What a sweep says first."""

from __future__ import annotations

from collections.abc import Iterator

from automl.config import MANY_TRIALS
from automl.running.going_on import how_to_go_on
from automl.running.parts import Parts
from automl.trial import TrialState


def greeting(parts: Parts) -> Iterator[str]:
    """What it works on, and how to come back to it; a line each."""
    yield from parts.prepared.notes
    n_gpus = parts.config.admission.devices_per_trial
    if n_gpus > 1 and all(device.on_host for device in parts.reader.addresses):
        yield f"admission.devices_per_trial={n_gpus} counts GPUs: here a trial has the host"
    config, study = parts.config.study, parts.study
    before = study.n_asked
    if parts.config.refit.of is not None:
        yield f"if it is interrupted: {how_to_go_on(parts.config)}"
        return
    if before >= config.n_wanted and not study.counts().get(TrialState.RUNNING):
        yield (
            f"study {study.name} has {before} trials already, study.n_trials={config.n_trials} "
            f"asks for no more; go on with: {how_to_go_on(parts.config, n_trials=before + 20)}"
        )
        return
    many = config.n_trials == MANY_TRIALS
    yield (
        f"study {study.name}: "
        f"{'as many trials as the time allows' if many else f'to {config.n_wanted} trials'}"
        f"{f', {before} of them from before' if before else ''}, up to "
        f"{parts.n_places} at once; if it is interrupted: {how_to_go_on(parts.config)}"
    )
