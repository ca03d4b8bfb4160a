"""What was timed, as rows of a table."""

from __future__ import annotations

from automl.commands.gain import GAIN_COLUMNS, gain_table_rows
from automl.config import Precision
from automl.measure.gain.gain_messages import TrainingWay
from tests.commands.gain_rows import GPU, row

BF16 = TrainingWay(precision=Precision.bfloat16)


def test_each_way_has_its_time_its_gain_and_what_does_not_shrink() -> None:
    rows = [
        row(0.008),
        row(0.006, TrainingWay(n_threads=2)),
        row(0.016, BF16, emulated=True),
        row(0.001, TrainingWay(n_lanes=8)),
        row(0.010, TrainingWay(copies=True)),
        row(0.080, size="large"),
        row(None, TrainingWay(n_threads=2), size="large"),
        row(0.002, device=GPU, trial=None),
    ]
    found = gain_table_rows(rows)
    assert all(len(cells) == len(GAIN_COLUMNS) for cells in found)
    assert found == [
        ("cpu", "small", "1 thread, float32", "8", "1.00", "", "0.8 s"),
        ("", "", "2 threads", "6", "1.33", "50%", "0.6 s"),
        ("", "", "bfloat16 (not native here)", "16", "0.50", "", "1.6 s"),
        ("", "", "pack of 8", "1", "8.00", "0%", "0.1 s"),
        ("", "", "data copied each step", "10", "0.80", "", "1 s"),
        ("", "large", "1 thread, float32", "80", "1.00", "", "8 s"),
        ("", "", "2 threads: ValueError: odd", "", "", "", ""),
        ("a GPU", "small", "1 thread, float32", "2", "4.00", "", ""),
    ]


def test_where_the_first_failed_there_is_no_gain_to_tell() -> None:
    found = gain_table_rows([row(None), row(0.006, TrainingWay(n_threads=2))])
    assert [cells[3:5] for cells in found] == [("", ""), ("6", "")]
