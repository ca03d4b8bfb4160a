"""Print the dearest test files, fixtures and tests of a run that `cost_plugin.py` has written down.

$ python experiments/028-checks/costs.py FOLDER [N]
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Cost:
    """Wall and CPU seconds, and how often they were paid."""

    cpu: float = 0.0
    wall: float = 0.0
    n: int = 0

    def add(self, line: Mapping[str, float]) -> None:
        self.cpu += line["cpu"]
        self.wall += line["wall"]
        self.n += 1


Group = tuple[str, Callable[[str, str], str | None]]
GROUPS: tuple[Group, ...] = (
    ("part", lambda kind, name: name.split("/")[1] if _is_test(kind) else None),
    ("file", lambda kind, name: name.split("::")[0] if _is_test(kind) else None),
    ("fixture", lambda kind, name: name if kind == "fixture" else None),
    ("test", lambda kind, name: name if _is_test(kind) else None),
    ("collection", lambda kind, name: name if kind == "collection" else None),
)
"""What is summed: a title, and the row that a line of a kind and a name belongs to, if any."""


def _is_test(kind: str) -> bool:
    return kind in ("setup", "call", "teardown")


def lines(folder: Path) -> Iterator[Mapping[str, float]]:
    """Yield what all processes of a run have written."""
    for path in sorted(folder.glob("*.jsonl")):
        yield from map(json.loads, path.read_text().splitlines())


def main(folder: str, n_rows: str = "100") -> None:
    found = {title: defaultdict[str, Cost](Cost) for title, _ in GROUPS}
    for line in lines(Path(folder)):
        for title, row_of in GROUPS:
            if (row := row_of(str(line["kind"]), str(line["name"]))) is not None:
                found[title][row].add(line)
    for title, rows in found.items():
        sys.stdout.write(f"\nCPU s   wall s  times  {title}\n")
        for name, cost in sorted(rows.items(), key=lambda row: -row[1].cpu)[: int(n_rows)]:
            sys.stdout.write(f"{cost.cpu:7.1f} {cost.wall:7.1f} {cost.n:6}  {name}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
