"""Draws what `crossover.py --json FILE` found: seconds, and dotted CPU seconds, by
parameters, both axes logarithmic.

Needs matplotlib, which MLflow brings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt


def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("results", type=Path, help="JSON of crossover.py")
    arguments.add_argument("picture", type=Path, help="SVG to write")
    args = arguments.parse_args(words)
    cells = json.loads(args.results.read_text())
    # Text as text, and no date or random ids: the same figures give the same file.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "crossover"})
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for way in dict.fromkeys(cell["way"] for cell in cells):
        of_way = [cell for cell in cells if cell["way"] == way]
        sizes, seconds, cpu_seconds = (
            [cell[key] for cell in of_way] for key in ("n_weights", "seconds", "cpu_seconds")
        )
        (line,) = axes.plot(sizes, seconds, marker="o", markersize=3, label=way)
        axes.plot(sizes, cpu_seconds, linestyle=":", color=line.get_color())
    axes.set(xscale="log", yscale="log", xlabel="parameters")
    axes.set_ylabel("seconds for one network (dotted: CPU time)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(args.picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
