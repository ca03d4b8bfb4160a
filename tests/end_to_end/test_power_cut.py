"""The power fails at the end of a sweep: whoever resumes it finds all of it."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.lossy_disk import LossyDisk

WORDS = (
    "study.n_trials=2",
    "training.epochs=1",
    "data.n_train=100",
    "data.n_validation=50",
    "sampler=random",
    "pruner=none",
    "devices.only=cpu",
    "execution=inline",  # in this process, whose flushes are heard
)


def test_a_study_goes_on_after_a_power_cut(folder: Path, lossy_disk: LossyDisk, call: Call) -> None:
    done = call("study.name=cut", *WORDS)
    assert done.code == 0, done.stderr
    left = lossy_disk.after_power_cut()
    for number in range(2):
        for name in ("best.pt", "last.pt"):
            path = Path("studies/cut/checkpoints", f"trial-{number:05d}", name)
            assert (left / path).read_bytes() == (folder / path).read_bytes()
    moved = "copy=false"  # as after any restore: what is left lies in another folder here
    again = Program(left).call("resume", "study.name=cut", "study.n_trials=3", moved)
    assert (again.code, again.stderr) == (0, "")
    Records(left, "cut").check_exact(3, 1, ["train_loss", "val_loss"])
