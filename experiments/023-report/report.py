"""Measures the size of a study's report, and the time to make it.

    python experiments/023-report/report.py --trials 300 10000

Each study is an event log of a random search that is written here: six params, twenty epochs, four
trials at once on two devices, a few failures, pruned trials. See README.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))

import optuna  # noqa: F401 - a sweep has loaded it when it makes its report

from automl.running.features.report_page import make_report
from tests.report.studies import write_study
from tests.report.study_kinds import random_search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, nargs="+", default=[300, 10_000])
    asked = parser.parse_args()
    sys.stdout.write("| trials | kB | CPU s |\n|---|---|---|\n")
    for n_trials in asked.trials:
        with TemporaryDirectory() as folder:
            study = Path(folder) / "study"
            write_study(study, random_search(n_trials))
            begun = time.process_time()
            page = make_report(study)
            seconds = time.process_time() - begun
            size = page.stat().st_size / 1e3
        sys.stdout.write(f"| {n_trials:,} | {size:,.0f} | {seconds:.2f} |\n")


if __name__ == "__main__":
    main()
