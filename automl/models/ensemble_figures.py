"""Draws pictures of an ensemble from rows that none of the models asked has seen.

It is the only module that knows matplotlib. It uses no global state of matplotlib, so that it does
not disturb threads and notebooks that draw, too.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from io import BytesIO

import numpy as np
from matplotlib.figure import Figure

from automl.config import Task
from automl.data.dataset import Dataset, DatasetPart, TableRows, Targets
from automl.data.scoring.label_thresholds import (
    held_out_thresholds,
    label_probabilities,
)
from automl.data.scoring.metrics import (
    Floats,
    make_predictions,
    predict_labels,
)
from automl.data.scoring.model_findings import (
    calibration_curve,
    confusion_matrix,
    permutation_importances,
)
from automl.models.family import TrainedModel
from automl.models.mean_model import MeanModel
from automl.record.study_files import (
    CALIBRATION_PLOT,
    ERRORS_PLOT,
    IMPORTANCES_PLOT,
    PREDICTED_PLOT,
)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; `width` and `height` are in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def png_bytes(figure: Figure) -> bytes:
    """Return the PNG file of a figure."""
    file = BytesIO()
    with warnings.catch_warnings():  # letters that the font lacks are drawn as boxes
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


MAX_ROWS = 2_000
"""Largest number of rows to shuffle columns in. A share of errors of this many is within 1 %."""
N_REPEATS = 5
IMPORTANCE_SECONDS = 20.0
"""About the longest time to compute importances. More columns get fewer repeats; so many that one
repeat takes longer get none."""
N_BARS = 25
N_CLASSES = 12
N_POINTS = 5_000


def ensemble_plots(
    data: Dataset,
    outputs: Floats,
    models: Mapping[int, TrainedModel],
    weights: Mapping[int, float],
    *,
    by_threshold: bool = False,
) -> dict[str, bytes]:
    """Return PNGs by the names of their files; without importances if there are too many columns.

    `outputs` are the ensemble's for `data.judged`; `models` and `weights` are its members', by
    trial. `by_threshold`: labels are chosen by a threshold.
    """
    pngs = {}
    if data.task is Task.regression:
        pngs[PREDICTED_PLOT] = _draw_predictions(data, outputs)
    else:
        pngs[ERRORS_PLOT] = _draw_errors(data, _labels(data, outputs, by_threshold=by_threshold))
        pngs[CALIBRATION_PLOT] = _draw_calibration(data, outputs)
    part, asked_models = _unseen_rows(data, models)
    asked_weights = [weights[trial] for trial in asked_models]
    ensemble = MeanModel(list(asked_models.values()), data.task, asked_weights)
    if (png := _draw_importances(data, part, ensemble)) is not None:
        pngs[IMPORTANCES_PLOT] = png
    return pngs


def _unseen_rows(
    data: Dataset, models: Mapping[int, TrainedModel]
) -> tuple[DatasetPart, dict[int, TrainedModel]]:
    """Return up to `MAX_ROWS` rows, and the models to ask, which did not train on them."""
    part, asked_models = data.validation, dict(models)
    if data.folds:
        part = data.train.take(data.folds[0].judged)
        asked_models = {n: m.members[0] for n, m in models.items() if isinstance(m, MeanModel)}
    order = np.random.default_rng(0).permutation(len(part))[:MAX_ROWS]
    return part.take(np.sort(order)), asked_models


def _draw_importances(data: Dataset, part: DatasetPart, model: TrainedModel) -> bytes | None:
    """Return the picture of the columns' importances; None: there are too many columns."""
    unit = data.target_mean, data.target_scale

    def loss(rows: TableRows) -> float:
        outputs = model.outputs(data.columns, rows)
        return make_predictions(data.task, outputs, part.y, *unit, data.loss).scored(["loss"])[
            "loss"
        ]

    begun = time.perf_counter()
    before = loss(part.rows)
    n_repeats = n_shuffle_repeats(time.perf_counter() - begun, len(data.columns.sources))
    if n_repeats < 1:
        return None
    found = permutation_importances(data.columns, part.rows, loss, n_repeats=n_repeats, seed=0)
    shown = found.iloc[:N_BARS]
    figure = new_figure(8, 1.5 + 0.28 * len(shown))
    axes = figure.add_subplot(
        title=_title(f"Columns that matter, the first {len(shown)} of {len(found)}", len(part)),
        xlabel=f"rise of the loss from {before:.4g} where a column is shuffled",
    )
    names = [_short(name) for name in shown.index]
    axes.barh(range(len(shown)), shown.importance, xerr=shown["std"], color="tab:blue")
    axes.set_yticks(range(len(shown)), names, parse_math=False)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    return png_bytes(figure)


def n_shuffle_repeats(one_seconds: float, n_columns: int) -> int:
    """Return how often each column may be shuffled, if one evaluation takes `one_seconds`."""
    if not n_columns:
        return 0
    return min(N_REPEATS, int(IMPORTANCE_SECONDS / max(one_seconds * n_columns, 1e-9)))


def _labels(data: Dataset, outputs: Floats, *, by_threshold: bool) -> Targets:
    if not by_threshold:
        return predict_labels(outputs, None)
    shares = label_probabilities(outputs)
    thresholds = held_out_thresholds(shares, data.judged.y)
    both = np.stack([1 - shares, shares], axis=1) if shares.ndim == 1 else shares
    return predict_labels(both, thresholds)


def _draw_errors(data: Dataset, predicted: Targets) -> bytes:
    found = confusion_matrix(predicted, data.judged.y, data.classes, n_most=N_CLASSES)
    n, names = len(found.names), [_short(name) for name in found.names]
    figure = new_figure(3.5 + 0.55 * n, 2.5 + 0.5 * n)
    axes = figure.add_subplot(
        title=_title("What rows of each class are taken for", len(data.judged)),
        xlabel="taken for",
        ylabel="class, and how many rows",
    )
    axes.imshow(found.shares, cmap="Blues", vmin=0, vmax=1)
    row_names = [f"{name}  {rows:,}" for name, rows in zip(names, found.n_rows.sum(1), strict=True)]
    axes.set_xticks(range(n), names, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(range(n), row_names, parse_math=False)
    for (row, column), share in np.ndenumerate(found.shares):
        colour = "white" if share > 0.5 else "black"
        axes.text(column, row, f"{share:.0%}", ha="center", va="center", color=colour)
    return png_bytes(figure)


def _draw_calibration(data: Dataset, outputs: Floats) -> bytes:
    shares = np.exp(outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True))
    found = calibration_curve(shares, data.judged.y)
    of_class = f"of {_short(str(data.classes[1]))}" if len(data.classes) == 2 else "of each class"
    figure = new_figure(6, 6)
    axes = figure.add_subplot(
        title=_title("Calibration", len(data.judged)),
        xlabel=f"probability {of_class} that is predicted",
        ylabel="share that is of the class",
        aspect="equal",
    )
    axes.xaxis.label.set_parse_math(False)
    axes.plot([0, 1], [0, 1], color="gray", linestyle="--", label="as it should be")
    axes.plot(found.predicted, found.observed, color="tab:blue")
    sizes = 20 + 180 * found.n_rows / found.n_rows.max()
    axes.scatter(
        found.predicted, found.observed, s=sizes, color="tab:blue", label="larger: more rows"
    )
    axes.legend(loc="upper left")
    axes.grid(alpha=0.3)
    return png_bytes(figure)


def _draw_predictions(data: Dataset, outputs: Floats) -> bytes:
    values = outputs[:, 0] * data.target_scale + data.target_mean
    true = data.judged.y.astype(np.float64)
    places = np.random.default_rng(0).permutation(len(true))[:N_POINTS]
    figure = new_figure(6, 6)
    axes = figure.add_subplot(
        title=_title("Predicted against true", len(data.judged)), xlabel="true", ylabel="predicted"
    )
    axes.xaxis.label.set_parse_math(False)
    axes.scatter(true[places], values[places], s=9, alpha=0.4, color="tab:blue", linewidths=0)
    axes.axline((true.mean(), true.mean()), slope=1, color="gray", linestyle="--")
    axes.grid(alpha=0.3)
    return png_bytes(figure)


def _title(text: str, n_rows: int) -> str:
    return f"{text}\n{n_rows:,} rows that no model asked has seen"


def _short(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"
