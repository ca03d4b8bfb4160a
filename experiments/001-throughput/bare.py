"""The floor: the training loops alone, nothing recorded, in one process or several warm ones."""

from __future__ import annotations

import multiprocessing
import random
import sys
from dataclasses import dataclass

import torch
from settings import SETTINGS, load_data, parser
from space import Data, Params, build, train


@dataclass(frozen=True)
class Loops:
    """Trains one set of params after another; made once per process."""

    data: Data
    n_epochs: int

    def best_loss(self, number: int, params: Params) -> float:
        """The best validation loss over the epochs."""
        model = build(params, self.data, seed=number)
        epochs = train(model, params, self.data, n_epochs=self.n_epochs, seed=number)
        return min(metrics["val_loss"] for metrics in epochs)


_loops: Loops  # of this process


def make_loops(setting: str, table: str | None) -> None:
    """Make this process ready to train: one thread, the data loaded once."""
    global _loops
    torch.set_num_threads(1)
    _loops = Loops(load_data(setting, table), SETTINGS[setting].n_epochs)


def best_loss(trial: tuple[int, Params]) -> float:
    """One trial in this process."""
    return _loops.best_loss(*trial)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--processes", type=int, default=1)
    args = arguments.parse_args()
    generator = random.Random(args.seed)
    space = SETTINGS[args.setting].space
    trials = [(number, space.draw(generator)) for number in range(args.trials)]
    if args.processes == 1:
        make_loops(args.setting, args.table)
        losses = [best_loss(trial) for trial in trials]
    else:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch"])
        with context.Pool(args.processes, make_loops, (args.setting, args.table)) as pool:
            losses = list(pool.imap_unordered(best_loss, trials))
    sys.stdout.write(f"{len(losses)} trials, best val_loss {min(losses):.4f}\n")


if __name__ == "__main__":
    main()
