"""Writes a table as the arrays that automl trains on, for the bare loops and the peers.

All contenders then see the same rows, columns and split. automl itself reads the table, so that
its time includes the reading; theirs does not. Runs in the project's own environment.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from automl.config import DataConfig, DataKind
from automl.data.features import one_hot_features
from automl.data.load import load_dataset

TARGET = "income"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("table", help="the Adult training table, CSV with a header")
    arguments.add_argument("output", help="file to write, .npz")
    args = arguments.parse_args()
    dataset = load_dataset(DataConfig(kind=DataKind.csv, path=args.table, target=TARGET))
    train_x, val_x = dataset.view(one_hot_features)
    np.savez(
        args.output,
        train_x=train_x,
        train_y=dataset.train.y.astype(np.int64),
        val_x=val_x,
        val_y=dataset.validation.y.astype(np.int64),
    )
    sys.stdout.write(
        f"{len(train_x)} + {len(val_x)} rows, "
        f"{train_x.shape[1]} features, {len(dataset.classes)} classes\n"
    )


if __name__ == "__main__":
    main()
