"""Each file of a study with a torn end, or with one bit flipped: harmless, or named.

A study is interrupted in its second trial. A copy of it is damaged, shown and resumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import automl
from automl.config import DataConfig
from automl.data.load import load_dataset
from automl.errors import AutoMLError
from automl.models.mean_model_file import write_ensemble
from automl.models.predictor import Predictor
from automl.record import study_files
from automl.record.study_files import PLOT_NAMES
from automl.record.study_requests import FolderRequestQueue
from tests.end_to_end.program import Done, Program, objective_words
from tests.end_to_end.records import Records
from tests.faults.conftest import N_POINTS, SEED, NotePromise, sample
from tests.flips import one_bit_flipped, torn_ends
from tests.models.test_ensemble import asked
from tests.models.test_refit_file import seed, written

pytestmark = pytest.mark.slow

STUDY = "damaged"
STORED = Path(__file__).parents[1] / "stored_studies" / "studies"
WORDS = (
    f"study.name={STUDY}",
    "study.n_trials=3",
    "copy=false",
    "training.checkpoint_every_seconds=0",
    "admission.max_concurrent_trials=1",
    "tracking.uri=none",  # tests/tracking/test_confirmed.py damages what is delivered
    "sampler=random",
    "pruner=none",
    "devices.only=cpu",
    *objective_words("trains_on_its_state"),
    "space={rate: {low: 0.1, high: 0.9}}",
)
FILES = (
    *("config.yaml", "events.log", "journal.log", "place.json", "status.json", "lock"),
    *(f"checkpoints/trial-0000{n}/{name}.pt" for n in (0, 1) for name in ("last", "best")),
    "checkpoints/trial-00001/last.previous.pt",
    "requests/*",
)
MODELS = ("disc", "table", "ensemble.pt", "refit.pt")
DAMAGED_BY = {
    "events.delivered": "tests/tracking/test_confirmed.py",
    "best.json": "tests/objectives/program/test_session.py",
    "repeat.json": "tests/objectives/test_repeats.py",
    "returned.json": "tests/objectives/program/test_ends.py",
}
"""The files that other tests damage."""
FOR_PEOPLE = {
    *("report.html", "delivery.log", "sweep.log", *PLOT_NAMES),
    *("written.log", "release.json"),
}
"""Files that are read for people alone, or only tell what need not be done again."""
MADE_AGAIN = ("config.yaml", "status.json")
"""Files whose content the event log has, too: a study goes on as if nothing were damaged."""
NOTHING = Path()
SMALL = DataConfig(n_train=20, n_validation=20)
Results = dict[str, object]
N_TORN, N_FLIPPED = min(4096, N_POINTS), min(500, N_POINTS)


class InterruptedStudy:
    """The study, and what it comes to where nothing is damaged."""

    def __init__(self, program: Program) -> None:
        self._program, self._folder = program, program.folder / "kept"
        records = Records(program.folder, STUDY)
        sweep = program.start(*WORDS)
        sweep.wait_until(lambda: (records.path / "half-way").exists(), "the second trial")
        sweep.kill()
        FolderRequestQueue(records.path).write("enqueue", {"points": [{"rate": 0.5}]})
        (records.path / "half-way").unlink()
        (records.path / "go on").touch()
        shutil.move(program.folder / "studies", self._folder)
        self.whole = self.resume()[1]

    def path(self, pattern: str) -> Path:
        (path,) = (self._folder / STUDY).glob(pattern)
        return path.relative_to(self._folder / STUDY)

    def content(self, path: Path) -> bytes:
        return (self._folder / STUDY / path).read_bytes()

    def resume(self, path: Path = NOTHING, content: bytes = b"") -> tuple[Done, Results]:
        """Show and resume a copy, the file damaged so; return what was said, and all results."""
        shutil.rmtree(self._program.folder / "studies", ignore_errors=True)
        shutil.copytree(self._folder, self._program.folder / "studies")
        records = Records(self._program.folder, STUDY)
        if path != NOTHING:
            (records.path / path).write_bytes(content)
        shown = self._program.call("status", WORDS[0])
        done = self._program.call("resume", WORDS[0], "execution=inline", "copy=false")
        said = Done(done.code, shown.stdout + done.stdout, shown.stderr + done.stderr)
        if done.code:
            return said, {}
        return said, {"losses": records.losses(), "params": records.params()}


@pytest.fixture(scope="module")
def study(module_program: Program) -> InterruptedStudy:
    return InterruptedStudy(module_program)


def damages(content: bytes, at_least: int = 0) -> Iterator[bytes]:
    yield from torn_ends(content, max(N_TORN, at_least), 2026 + SEED)
    yield from one_bit_flipped(content, max(N_FLIPPED, at_least), 2026 + SEED)


@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("name", sample(FILES, 5))
def test_damage_is_harmless_or_named(
    study: InterruptedStudy, name: str, note_promise: NotePromise
) -> None:
    n_tried, broken, path = 0, [], study.path(name)
    for content in damages(study.content(path)):
        said, results = study.resume(path, content)
        n_tried += 1
        if said.code:
            is_well = "automl: " in said.stderr and name not in MADE_AGAIN
        elif name in MADE_AGAIN:
            is_well = results == study.whole
        else:
            text = said.stdout + said.stderr
            is_well = results == study.whole or path.name in text
            is_well &= name != "checkpoints/trial-00001/last.pt" or "anew" not in text
        if not is_well:
            broken.append((content, said))
    note_promise(f"damaged {name}", n_tried, len(broken))
    assert broken == []


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MODELS)
def test_a_damaged_model_is_named_or_predicts_the_same(
    name: str, tmp_path: Path, note_promise: NotePromise
) -> None:
    path = model_file(name, tmp_path)
    whole, said = predicted(path), ""
    contents = [*damages(path.read_bytes(), at_least=60)]
    for content in contents:
        path.write_bytes(content)
        try:
            assert predicted(path) == whole
        except AutoMLError as error:
            said = str(error)
            assert str(path) in said
    note_promise(f"damaged model of {name}", len(contents), 0)
    assert said


def model_file(name: str, folder: Path) -> Path:
    """Return a model of a stored study, or the mean of two networks."""
    if name == "refit.pt":
        return written(folder, [seed(folder, n, load_dataset(SMALL)) for n in (0, 1)])
    if name == "ensemble.pt":
        write_ensemble(job := asked(folder, load_dataset(SMALL), 4.0, 6.0))
        return Path(job.path)
    path = folder / "best.pt"
    path.write_bytes((STORED / name / "checkpoints/trial-00000/best.pt").read_bytes())
    return path


def test_each_file_of_a_study_is_damaged_by_a_test() -> None:
    names = {v for k, v in vars(study_files).items() if k.isupper() and type(v) is str and "." in v}
    damaged = {Path(name).name for name in (*FILES, *MODELS)}
    assert names - damaged - FOR_PEOPLE == DAMAGED_BY.keys()
    for test in DAMAGED_BY.values():
        assert "in one_bit_flipped(" in (STORED.parents[2] / test).read_text()


def predicted(path: Path) -> bytes:
    """Return what the model says to some rows."""
    model = automl.load(path)
    assert isinstance(model, Predictor)
    names, random = [column.name for column in model.columns.own.all], np.random.default_rng(0)
    rows = pd.DataFrame(random.normal(size=(20, len(names))), columns=names)
    for column in model.columns.own.categories:
        rows[column.name] = random.choice(list(filter(None, column.categories)), 20)
    says = model.predict_probabilities if len(model.classes) else model.predict
    return np.asarray(says(rows)).tobytes()
