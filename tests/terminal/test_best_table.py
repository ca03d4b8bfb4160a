"""The closing table: the best trials."""

from __future__ import annotations

import pytest

from automl.terminal.best_table import print_best
from automl.terminal.view import BestRow
from tests.terminal.test_rendering import BEST


def test_the_best_trials_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    other = BestRow(19, 0.0484453, {"depth": 2, "width": 57, "lr": 0.0622275, "momentum": 0.9})
    print_best([(BEST, "finished"), (other, "pruned")], "val_loss")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["best", "trials"],
        ["trial", "val_loss", "depth", "width", "lr", "batch_size", "momentum", "state"],
        ["3", "0.033012", "3", "52", "0.0283", "64", "finished"],
        ["19", "0.048445", "2", "57", "0.06223", "0.9", "pruned"],
    ]


def test_two_more_metrics_that_people_read_stand_beside(capsys: pytest.CaptureFixture[str]) -> None:
    other = BestRow(19, 0.95, {"depth": 2})
    metrics = {
        3: {"val_auc": 0.97, "val_brier": 0.1, "val_loss": 0.2, "val_error": 0.04},
        19: {"val_auc": 0.95},
    }
    print_best(
        [(BestRow(3, 0.97, {"depth": 3}), "finished"), (other, "pruned")], "val_auc", metrics
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [
        ["trial", "val_auc", "val_loss", "val_error", "depth", "state"],
        ["3", "0.97", "0.2", "0.04", "3", "finished"],
        ["19", "0.95", "2", "pruned"],
    ]


def test_too_many_params_for_columns_are_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    params = {f"a_rather_long_name_{n}": n for n in range(8)}
    print_best([(BestRow(3, 0.5, params), "finished")], "val_loss", {3: {"val_error": 0.25}})
    header, line = capsys.readouterr().out.splitlines()[1:]
    assert header.split() == ["trial", "val_loss", "val_error", "state", "params"]
    assert line.startswith("3      0.5       0.25       finished  a_rather_long_name_0 0, ")
    assert line.endswith("a_rather_long_name_7 7")


def test_what_a_stranger_wrote_is_neither_markup_nor_an_order_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = BestRow(3, 0.5, {"how": "[/b] :smile: \x1b[2J"})
    print_best([(odd, "finished")], "[bold]loss")
    shown = capsys.readouterr().out
    assert "  [/b] :smile: �[2J  finished" in shown
    assert "[bold]loss" in shown
    assert "\x1b" not in shown
