"""Which lines tell metrics, and which; lines out of bytes; lines put together into reports."""

from __future__ import annotations

import math

import pytest

from automl.objectives.program.printed_metrics import (
    MAX_LINE_BYTES,
    MAX_METRICS,
    LineSplitter,
    PrintedMetrics,
    PrintedReport,
    ReportGrouping,
    find_metrics,
    make_metric_finder,
)

MNIST = r"Average loss: (?P<val_loss>[\d.]+), Accuracy: (?P<n_right>\d+)/"


@pytest.mark.parametrize(
    ("line", "metrics", "step"),
    [
        ("val_loss: 0.31", {"val_loss": 0.31}, None),
        ("val_loss=0.31", {"val_loss": 0.31}, None),
        ("val_loss = -3.1e-1 (best)", {"val_loss": -0.31}, None),
        ("Val Loss: 0.31", {"val_loss": 0.31}, None),
        ("val/loss: 0.31.", {"val_loss": 0.31}, None),
        ('{"val_loss": 0.31, "epoch": 3, "done": true}', {"val_loss": 0.31}, 3),
        ('{"val": {"loss": 0.31}, "name": "a: 7"}', {"val_loss": 0.31}, None),
        ('INFO {"val_loss": 0.31}', {"val_loss": 0.31}, None),
        ("{'eval_loss': 0.31, 'epoch': 1.0}", {"eval_loss": 0.31}, 1),
        ("{'eval_loss': '0.31', 'epoch': '1.5'}", {"eval_loss": 0.31}, None),
        (
            "step 250: train loss 2.41, val loss 2.53",
            {"train_loss": 2.41, "val_loss": 2.53},
            250,
        ),
        ("step 1,000: val loss 2.5", {"val_loss": 2.5}, 1000),
        ("iter 10: loss 2.31, time 12.30ms, mfu -1.0%", {"loss": 2.31}, 10),
        ("Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300", {"Loss": 2.3}, 1),
        ("Epoch 3/10 - loss: 0.5 - val_loss: 4e-1", {"loss": 0.5, "val_loss": 0.4}, 3),
        ("Epoch [3/10], val_acc: 97.3%", {"val_acc": 97.3}, 3),
        (
            "Epoch 0: 100%|██| 5/5 [00:00<00:00, 12.2it/s, val_loss=0.31]",
            {"val_loss": 0.31},
            0,
        ),
        ("2026-11-22 11:39:24,123 INFO root - val loss = 0.31", {"val_loss": 0.31}, None),
        ("2026-11-22 11:39:24 INFO val_loss: 0.31", {"val_loss": 0.31}, None),
        ("[rank0] val_loss: +.5", {"val_loss": 0.5}, None),
        ("====> Epoch: 1 Average loss: 105.6", {"average_loss": 105.6}, 1),
        ("Test set: Average loss: 0.04, Accuracy: 9858/10000", {"average_loss": 0.04}, None),
        ("tokens per iteration will be: 16,384", {}, None),
        ("number of parameters: 10.65M", {}, None),
        ("Using 4 workers since 11:39:24", {}, None),
        ("torch: 2.13.0, date: 2026-11-22", {}, None),
        ("step -1 and step 2.5", {}, None),
        ("val_loss", {}, None),
        ('{"val_loss": 0.3', {"val_loss": 0.3}, None),
        ("[1, 2]", {}, None),
    ],
)
def test_metrics_of_a_line(line: str, metrics: dict[str, float], step: int | None) -> None:
    assert find_metrics(line, "val_loss") == PrintedMetrics(metrics, step)


@pytest.mark.parametrize(
    ("text", "value"), [("nan", math.nan), ("-inf", -math.inf), ("Infinity", math.inf)]
)
def test_what_is_no_finite_number_is_a_value(text: str, value: float) -> None:
    for line in (f"val_loss: {text}", f"val loss {text}, lr 0.1"):
        assert find_metrics(line, "val_loss").metrics["val_loss"] == pytest.approx(
            value, nan_ok=True
        )


def test_the_metric_is_the_whole_name_where_it_is_one_word() -> None:
    assert find_metrics("val loss 0.5, loss 0.7", "loss").metrics == {"val_loss": 0.5, "loss": 0.7}


def test_a_number_of_json_that_no_float_holds_is_infinite() -> None:
    assert find_metrics(f'{{"val_loss": {"9" * 400}}}', "val_loss").metrics == {
        "val_loss": math.inf
    }


@pytest.mark.parametrize(
    ("pattern", "line", "metrics", "step"),
    [
        (
            MNIST,
            "Test set: Average loss: 0.0437, Accuracy: 9858/10000 (99%)",
            {"val_loss": 0.0437, "n_right": 9858.0},
            None,
        ),
        (
            r"Test set loss: (?P<val_loss>\S+)",
            "====> Test set loss: 105.6",
            {"val_loss": 105.6},
            None,
        ),
        (r"(?P<epoch>\d+) (?P<val_loss>\S+)", "7 1,000.5", {"val_loss": 1000.5}, 7),
        (r"a (?P<val_loss>\S+)|b (?P<acc>\S+)", "a 1 b 50%", {"val_loss": 1.0, "acc": 50.0}, None),
        (r"(?P<val_loss>\w+)", "loss: 0.3", {"val_loss": 3.0}, None),
        (MNIST, "val_loss: 0.31", {}, None),
    ],
)
def test_a_patterns_groups_are_all_that_is_found(
    pattern: str, line: str, metrics: dict[str, float], step: int | None
) -> None:
    assert make_metric_finder("val_loss", pattern)(line) == PrintedMetrics(metrics, step)


@pytest.mark.parametrize("piece", ["a", "1", "a ", "1,", "val_loss:", "{'a':", "-", "1e", '{"a":'])
def test_time_grows_with_a_line_and_no_faster(piece: str) -> None:
    """A hundred times the longest: where it grew with the square the test would not end in time."""
    assert find_metrics(piece * (100 * MAX_LINE_BYTES // len(piece)), "val_loss").step is None


# --- lines ----------------------------------------------------------------------------------------


def lines(*chunks: bytes) -> list[str]:
    read = LineSplitter()
    return [line for chunk in chunks for line in read.feed(chunk)] + list(read.rest())


@pytest.mark.parametrize(
    ("chunks", "found"),
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a", b"b\r\ncd", b"e"], ["ab", "cde"]),
        ([b" 5%\r10%\r"], [" 5%", "10%"]),
        ([b"\xff\xfe\x00: 1\n"], ["\ufffd\ufffd\x00: 1"]),
        ([b"a" * 5000, b"b\nc\n"], ["a" * MAX_LINE_BYTES, "c"]),
        ([b"\n \n"], []),
    ],
)
def test_lines_of_bytes(chunks: list[bytes], found: list[str]) -> None:
    assert lines(*chunks) == found


# --- reports --------------------------------------------------------------------------------------


def reports(*found: PrintedMetrics) -> list[PrintedReport]:
    grouping = ReportGrouping("v")
    return [r for one in found for r in grouping.take(one)] + list(grouping.rest())


def test_without_steps_reports_are_counted() -> None:
    assert reports(PrintedMetrics({"v": 3.0}), PrintedMetrics({"v": 2.0})) == [
        (0, {"v": 3.0}),
        (1, {"v": 2.0}),
    ]


def test_lines_before_the_metric_are_told_with_it() -> None:
    train = PrintedMetrics({"loss": 9.0}), PrintedMetrics({"loss": 8.0})
    assert reports(*train, PrintedMetrics({"v": 3.0})) == [(0, {"loss": 8.0, "v": 3.0})]


def test_a_step_said_before_is_that_of_the_metric() -> None:
    found = reports(
        PrintedMetrics({}, 4),
        PrintedMetrics({"v": 3.0}),
        PrintedMetrics({"loss": 1.0}, 5),
        PrintedMetrics({"v": 2.0}),
    )
    assert found == [(4, {"v": 3.0}), (5, {"loss": 1.0, "v": 2.0})]


def test_another_step_tells_what_was_not_told() -> None:
    found = reports(
        PrintedMetrics({"loss": 1.0}, 10),
        PrintedMetrics({"loss": 2.0}, 20),
        PrintedMetrics({"v": 1.0}, 20),
    )
    assert found == [(10, {"loss": 1.0}), (20, {"loss": 2.0, "v": 1.0})]


def test_a_step_is_reported_once_and_then_counted_on() -> None:
    found = reports(
        PrintedMetrics({"v": 3.0}, 7), PrintedMetrics({"v": 2.0}, 7), PrintedMetrics({"v": 1.0}, 0)
    )
    assert [step for step, _ in found] == [7, 8, 9]


def test_a_step_that_no_store_can_hold_is_none() -> None:
    assert reports(PrintedMetrics({"v": 3.0}, 2**60)) == [(0, {"v": 3.0})]


def test_names_without_end_make_no_report_without_end() -> None:
    ((_, metrics),) = reports(
        *(PrintedMetrics({f"x{n}": 1.0}) for n in range(1000)), PrintedMetrics({"v": 1.0})
    )
    assert len(metrics) == MAX_METRICS + 1
    assert metrics["v"] == 1.0
