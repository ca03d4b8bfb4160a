"""What `peers.py` wrote, as tables in Markdown and a plot of the error over time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt
from peers import DEFAULTS, TIMED, Key, Result, area_under_curve, read

OURS = "automl"
RIVALS = tuple(tool for tool in TIMED if tool != OURS)
N_RESAMPLED, N_RESAMPLED_AUC = 2000, 400

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """Of ours from another's loss, in percent of the other's; below 0: ours is better."""

    percent: float
    low: float
    high: float
    standard_error: float

    @property
    def is_behind(self) -> bool:
        return self.low > 0

    def __str__(self) -> str:
        high = min(self.high, 9999)  # of some samples the other's loss is 0
        return f"{self.percent:+.1f} ({self.low:+.1f} to {high:+.1f})"


@dataclass(frozen=True)
class Board:
    """The results with so many minutes, and those of tools that were not told any."""

    folder: Path
    minutes: float
    tools: Sequence[str]
    splits: Mapping[str, Sequence[int]]
    """By table; those that all tools were tried on."""
    results: Mapping[Key, Result]

    def key(self, table: str, split: int, tool: str) -> Key:
        return Key(table, split, tool, self.minutes if tool in TIMED else 0)

    def of(self, table: str, tool: str) -> Sequence[Result]:
        return [self.results[self.key(table, split, tool)] for split in self.splits[table]]

    def loss(self, table: str, tool: str) -> float:
        """Mean over the splits; infinite where it failed."""
        losses = [result.loss for result in self.of(table, tool)]
        return fmean(np.inf if loss is None else loss for loss in losses)

    def ranks(self, table: str) -> Floats:
        """Of the tools, 1 the best; ties share theirs."""
        losses = np.array([self.loss(table, tool) for tool in self.tools])
        below = (losses[None, :] < losses[:, None]).sum(axis=1)
        same = (losses[None, :] == losses[:, None]).sum(axis=1)
        return np.asarray(1 + below + (same - 1) / 2)

    def best_default(self, table: str) -> str:
        """Chosen afterwards."""
        there = [tool for tool in self.tools if tool in DEFAULTS]
        return min(there, key=lambda tool: self.loss(table, tool))

    def difference(self, table: str, other: str) -> Difference | None:
        """By the test rows that both were scored on, paired; None where one of them failed."""
        if not np.isfinite([self.loss(table, tool) for tool in (OURS, other)]).all():
            return None
        sums = [_sums_by_row(self, table, tool) for tool in (OURS, other)]
        squared = self.of(table, OURS)[0].error is None
        n_rows = np.bincount(np.concatenate([rows for rows, _ in _losses(self, table, OURS)]))
        return compared(sums[0], sums[1], n_rows.astype(float), squared=squared)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--plot", type=Path, help="file of the plot, SVG")
    asked = parser.parse_args()
    results = read(asked.out)
    boards = [
        board(asked.out, results, minutes)
        for minutes in sorted({result.key.minutes for result in results} - {0})
    ]
    for each in boards:
        sys.stdout.write("\n".join(lines(each)) + "\n\n")
    if asked.plot:
        draw(boards, asked.plot)


def board(folder: Path, results: Sequence[Result], minutes: float) -> Board:
    """Exits where no table was tried with all of the tools."""
    found = {r.key: r for r in results if r.key.minutes == (minutes if r.key.tool in TIMED else 0)}
    tools = [tool for tool in (*TIMED, *DEFAULTS) if any(key.tool == tool for key in found)]
    splits = {}
    for table in dict.fromkeys(key.table for key in found):
        tried = [{k.split for k in found if (k.table, k.tool) == (table, t)} for t in tools]
        if whole := sorted(set.intersection(*tried)):
            splits[table] = whole
    if OURS not in tools or not splits:
        sys.exit(f"{minutes:g} min: no table was tried with {', '.join(tools)} and {OURS}")
    return Board(folder, minutes, tools, splits, found)


def compared(ours: Floats, other: Floats, n_rows: Floats, *, squared: bool) -> Difference:
    """Sums of losses by row, and how often each was scored; rows are drawn anew with replacement.

    `squared`: the losses are squared errors, of which the root of the mean is compared.
    """
    there = np.flatnonzero(n_rows)
    random = np.random.default_rng(0)
    drawn = random.multinomial(len(there), np.full(len(there), 1 / len(there)), size=N_RESAMPLED)
    weights = np.vstack([np.ones(len(there)), drawn])  # the first: as it was
    means = [weights @ sums[there] / (weights @ n_rows[there]) for sums in (ours, other)]
    first, second = (np.sqrt(mean) if squared else mean for mean in means)
    percent = 100 * (first / np.maximum(second, np.finfo(float).tiny) - 1)
    low, high = np.percentile(percent[1:], [2.5, 97.5])
    return Difference(float(percent[0]), float(low), float(high), float(percent[1:].std()))


def _losses(board: Board, table: str, tool: str) -> list[tuple[npt.NDArray[np.int64], Floats]]:
    files = [board.key(table, split, tool).file for split in board.splits[table]]
    loaded = (np.load(board.folder / file) for file in files)
    return [(arrays["rows"], arrays["losses"]) for arrays in loaded]


def _sums_by_row(board: Board, table: str, tool: str) -> Floats:
    rows, losses = zip(*_losses(board, table, tool), strict=True)
    sums = np.bincount(np.concatenate(rows), weights=np.concatenate(losses))
    return np.asarray(sums, dtype=np.float64)


def lines(board: Board) -> Iterator[str]:
    """What is read of one time limit."""
    yield f"### {board.minutes:g} min"
    yield from _by_table(board)
    yield from _against_rivals(board)
    yield from _against_the_best_default(board)


def _by_table(board: Board) -> Iterator[str]:
    yield "\nLog-loss, or RMSE; mean of the splits.\n"
    yield from _head("table", "splits", *board.tools)
    for table, splits in board.splits.items():
        losses = [board.loss(table, tool) for tool in board.tools]
        shown = [f"{x:.4g}" if np.isfinite(x) else "failed" for x in losses]
        cells = [
            f"**{of}**" if x == min(losses) else of for x, of in zip(losses, shown, strict=True)
        ]
        yield _row(table, str(len(splits)), *cells)
    yield _row("mean rank (95 %)", "", *_mean_ranks(board))
    for what in ("wall_seconds", "cpu_seconds"):
        spent = [
            [getattr(r, what) for table in board.splits for r in board.of(table, tool)]
            for tool in board.tools
        ]
        means = [fmean([x for x in of if x is not None] or [np.nan]) for of in spent]
        yield _row(what.replace("_", " "), "", *(f"{mean:.0f}" for mean in means))


def _mean_ranks(board: Board) -> Iterator[str]:
    """Yield the mean rank of each tool, with the interval of bootstraps of the tables."""
    ranks = np.array([board.ranks(table) for table in board.splits])
    random = np.random.default_rng(0)
    drawn = random.integers(0, len(ranks), (N_RESAMPLED, len(ranks)))
    means = ranks[drawn].mean(axis=1)
    for mean, low, high in zip(
        ranks.mean(axis=0), *np.percentile(means, [2.5, 97.5], axis=0), strict=True
    ):
        yield f"{mean:.2f} ({low:.2f} to {high:.2f})"


def _against_rivals(board: Board) -> Iterator[str]:
    there = [tool for tool in RIVALS if tool in board.tools]
    if not there:
        return
    yield "\nOurs against tools with the same time, % of their loss, 95 % of paired bootstraps.\n"
    yield from _head("table", *there)
    found = {t: [board.difference(t, tool) for tool in there] for t in board.splits}
    for table, differences in found.items():
        yield _row(table, *("" if d is None else str(d) for d in differences))
    for place, tool in enumerate(there):
        known = {t: of[place] for t, of in found.items() if of[place] is not None}
        behind = [table for table, d in known.items() if d is not None and d.is_behind]
        ahead = sum(d is not None and d.high < 0 for d in known.values())
        names = f": {', '.join(behind)}" if behind else ""
        better = sum(d is not None and d.percent < 0 for d in known.values())
        yield (
            f"\n{tool}: ahead on {better} of {len(known)}, by more than chance on {ahead}; "
            f"behind by more than chance on {len(behind)}{names}."
        )


def _against_the_best_default(board: Board) -> Iterator[str]:
    if not any(tool in DEFAULTS for tool in board.tools):
        return
    yield "\nOurs against the best default, chosen afterwards, percent of its loss and of rows.\n"
    yield from _head(
        *("table", "rows", "ours", "best default", "its loss", "loss, % (95 %)"),
        *("error", "least error of a default", "difference (± 2 se)"),
    )
    found: dict[str, Difference] = {}
    worse: dict[str, bool] = {}
    for table in board.splits:
        best = board.best_default(table)
        if (difference := board.difference(table, best)) is None:
            continue
        found[table] = difference
        mark = "**" * difference.is_behind
        loss, its = (f"{board.loss(table, tool):.4g}" for tool in (OURS, best))
        errors, worse[table] = _against_the_least_error(board, table)
        n_train = f"{board.of(table, OURS)[0].n_train:,}"
        yield _row(table, n_train, loss, best, its, f"{mark}{difference}{mark}", *errors)
    yield from _against_the_largest_auc(board)
    percents = [difference.percent for difference in found.values()]
    yield (
        f"\nThe mean is {fmean(percents):+.1f} %, the median {np.median(percents):+.1f} %. "
        f"Ahead by more than chance on {sum(d.high < 0 for d in found.values())} of {len(found)}. "
        f"Behind: {', '.join(t for t, d in found.items() if d.is_behind) or 'none'}; by error: "
        f"{', '.join(t for t, is_worse in worse.items() if is_worse) or 'none'}."
    )


def _against_the_least_error(board: Board, table: str) -> tuple[Sequence[str], bool]:
    """Return the cells of the error, and whether ours is larger by more than two standard errors;
    both are of the rows' mean over the splits."""
    if board.of(table, OURS)[0].error is None:
        return ("", "", ""), False
    there = [tool for tool in board.tools if tool in DEFAULTS]
    errors = {tool: fmean(_wrong(board, table, tool).values()) for tool in (OURS, *there)}
    best = min(there, key=lambda tool: errors[tool])
    ours, other = (_wrong(board, table, tool) for tool in (OURS, best))
    change = 100 * np.array([ours[row] - other[row] for row in ours])
    twice = 2 * change.std() / np.sqrt(len(change))
    cells = (
        f"{errors[OURS]:.1%}",
        f"{errors[best]:.1%} {best}",
        f"{change.mean():+.1f} ± {twice:.1f}",
    )
    return cells, bool(change.mean() > twice)


def _against_the_largest_auc(board: Board) -> Iterator[str]:
    """Compare the AUC with the largest of a default, chosen afterwards, by paired bootstraps of the
    test rows of all splits."""
    there = [tool for tool in board.tools if tool in DEFAULTS]
    yield "\nBy AUC.\n"
    yield from _head("table", "ours", "largest AUC of a default", "difference (95 %)")
    behind = []
    for table in board.splits:
        areas = {tool: [r.auc for r in board.of(table, tool)] for tool in (OURS, *there)}
        known = {
            t: fmean(x for x in of if x is not None) for t, of in areas.items() if None not in of
        }
        if OURS not in known or len(known) < 2:
            continue
        best = max(known.keys() - {OURS}, key=lambda tool: known[tool])
        change = np.mean(
            [_auc_change(board, table, split, best) for split in board.splits[table]], axis=0
        )
        low, high = np.percentile(change, [2.5, 97.5])
        behind += [table] if high < 0 else []
        mark = "**" * bool(high < 0)
        shown = f"{known[OURS] - known[best]:+.4f} ({low:+.4f} to {high:+.4f})"
        yield _row(table, f"{known[OURS]:.4f}", f"{known[best]:.4f} {best}", f"{mark}{shown}{mark}")
    yield f"\nBehind by AUC: {', '.join(behind) or 'none'}.\n"


def _auc_change(board: Board, table: str, split: int, other: str) -> Floats:
    """Return by how much our AUC is above another's, on each sample of the test rows."""
    found = []
    for tool in (OURS, other):
        arrays = np.load(board.folder / board.key(table, split, tool).file)
        said, right = arrays["said"], arrays["right"]
        drawn = np.random.default_rng(0).integers(0, len(right), (N_RESAMPLED_AUC, len(right)))
        found.append([area_under_curve(said[rows], right[rows]) for rows in drawn])
    ours, others = np.array(found)
    return np.asarray(ours - others)


def _wrong(board: Board, table: str, tool: str) -> Mapping[int, float]:
    """Return how often each row's class was wrong, a mean over the splits that test on the row."""
    found: dict[int, list[float]] = {}
    for split in board.splits[table]:
        arrays = np.load(board.folder / board.key(table, split, tool).file)
        for row, is_wrong in zip(arrays["rows"], arrays["wrong"], strict=True):
            found.setdefault(int(row), []).append(float(is_wrong))
    return {row: fmean(each) for row, each in sorted(found.items())}


def _head(*cells: str) -> tuple[str, str]:
    return _row(*cells), f"|{'---|' * len(cells)}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def draw(boards: Sequence[Board], path: Path) -> None:
    """How far each tool is behind the best of all, by the wall-clock that it took.

    The median over the tables that all limits have: on some the best loss is nearly 0.
    """
    from matplotlib import pyplot

    shared = set.intersection(*(set(board.splits) for board in boards))
    everyone = [(board, tool) for board in boards for tool in board.tools]
    best = {table: min(b.loss(table, tool) for b, tool in everyone) for table in shared}
    points: dict[str, list[tuple[float, float]]] = {}
    for each, tool in everyone:
        losses = {table: each.loss(table, tool) for table in shared}
        behind = [100 * (x / best[t] - 1) for t, x in losses.items() if np.isfinite(x)]
        walls = [r.wall_seconds for table in shared for r in each.of(table, tool)]
        took = [wall for wall in walls if wall is not None]
        if behind and took:
            points.setdefault(tool, []).append((fmean(took), float(np.median(behind))))
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for tool, of in points.items():
        marker = "o-" if tool in TIMED else "x"
        axes.plot(*zip(*sorted(set(of)), strict=True), marker, label=tool)
    axes.set(xscale="log", xlabel="seconds, mean", ylabel="behind the best of all, %, median")
    axes.set_title(f"{len(shared)} tables")
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


if __name__ == "__main__":
    main()
