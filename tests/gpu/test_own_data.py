"""Data of the user's own on a GPU: rows that stay there, and those that are brought to it."""

from dataclasses import replace
from pathlib import Path

import pytest

from automl.objectives.training_session import open_session
from automl.objectives.user_data.source import describe_data
from automl.trial import FinishedOutcome, Placement
from tests.models.conftest import Listener, make_spec
from tests.models.packs.test_pack import Sweep, Trials
from tests.objectives.user_data.test_source import make_setup
from tests.objectives.user_data.test_training import PARAMS

pytestmark = pytest.mark.gpu


def reports(source: str, gpu: Placement, folder: Path, request: int | None = None) -> Listener:
    setup = make_setup(source, loader_workers=2, ema_decay=0.9)
    listener = Listener()
    session = open_session(replace(setup, facts=describe_data(setup), request_bytes=request))
    session.run(make_spec(folder, PARAMS), gpu, listener)
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    return listener


def test_loaded_rows_train_to_what_rows_that_stay_train_to(gpu: Placement, tmp_path: Path) -> None:
    stay = reports("images", gpu, tmp_path / "stay").reports
    for name, source, request in (("loaded", "datasets", None), ("little", "images", 1000)):
        found = reports(source, gpu, tmp_path / name, request).reports
        for (_, a), (_, b) in zip(found, stay, strict=True):
            assert a == pytest.approx(b, rel=1e-4)


def test_a_pack_of_images_has_the_losses_of_training_alone(gpu: Placement, tmp_path: Path) -> None:
    setup = make_setup("images")
    session = open_session(replace(setup, facts=describe_data(setup)))
    sweep, alone = Sweep(), Listener()
    specs = [make_spec(tmp_path, {**PARAMS, "lr": 0.01 * (1 + n)}, n) for n in range(3)]
    session.run_pack(Trials(specs, 3), gpu, sweep)
    session.run(make_spec(tmp_path / "alone", specs[0].params), gpu, alone)
    assert len(sweep.reports_together) == 4
    for (_, a), (_, b) in zip(sweep.of(0).reports, alone.reports, strict=True):
        assert a == pytest.approx(b, rel=1e-3)
