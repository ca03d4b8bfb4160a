"""Reads what a trial's program logs to W&B (`objective.wandb`), and prepares its environment.

The program imports `wandb_path/wandb` in the place of W&B, which appends each call of `wandb.log`
to a file of the trial. W&B itself is offline, unless WANDB_MODE says otherwise.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from automl.objectives.program import wandb_path
from automl.objectives.program.program_arguments import nested_params
from automl.record.texts import parse_json
from automl.trial import LoggedPoint, Params

WANDB_PATH = str(Path(wandb_path.__file__).parent)
"""The folder for the Python path of a program that logs to W&B."""
LOG_VARIABLE = "AUTOML_WANDB_LOG"
_LOG_FILE = "wandb.jsonl"
_PARAMS_FILE = "wandb-params.json"


def wandb_files(folder: Path, params: Params) -> dict[Path, str]:
    """Return the files that a trial's program needs, with their texts."""
    values = {name: {"value": value} for name, value in nested_params(params).items()}
    return {folder / _PARAMS_FILE: json.dumps(values), folder / _LOG_FILE: ""}


def wandb_environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a trial's program that has the files of `wandb_files`."""
    path = [WANDB_PATH, environ.get("PYTHONPATH", "")]
    mode = environ.get("WANDB_MODE", "disabled")
    return {
        "WANDB_MODE": "offline" if mode == "disabled" else mode,  # disabled, it logs nothing
        "WANDB_SILENT": environ.get("WANDB_SILENT", "true"),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        LOG_VARIABLE: str(folder / _LOG_FILE),
        "WANDB_SWEEP_PARAM_PATH": str(folder / _PARAMS_FILE),
        "WANDB_DIR": str(folder),
    }


class WandbLog:
    """The calls of `wandb.log` of one program, read as they arrive."""

    def __init__(self, folder: Path) -> None:
        self._path, self._n_bytes = folder / _LOG_FILE, 0

    def calls(self) -> Iterator[tuple[dict[str, float], int | None]]:
        """Yield the numbers of each new call, and its step; None: the call was about the whole run.

        Raises OSError.
        """
        if self._path.stat().st_size == self._n_bytes:
            return
        with open(self._path, "rb") as file:
            file.seek(self._n_bytes)
            for line in file:
                if not line.endswith(b"\n"):  # still being written
                    return
                self._n_bytes += len(line)
                call = parse_json(line)
                yield {str(name): float(v) for name, v in call["values"].items()}, call["step"]


def logged_points(
    values: Mapping[str, float], step: int | None, metric: str, last_step: int | None
) -> list[LoggedPoint]:
    """Return the points of a call of `wandb.log`; `last_step` is that of the trial's last report.

    Calls with the metric are reports, which are counted, as W&B counts for `early_terminate`. Other
    values have W&B's step.
    """
    now_ms = int(time.time() * 1000)
    last = -1 if last_step is None else last_step
    at = last + 1 if metric in values else max(last, 0) if step is None else step
    names = sorted(values, key=lambda name: name != metric)  # the metric makes the report
    return [LoggedPoint(name, values[name], at, now_ms) for name in names]
