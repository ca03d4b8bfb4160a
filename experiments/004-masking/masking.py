"""What fitting and masking 400,000 characters costs, by the shape of the text."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

from automl.record.secrets import mask_credentials, mask_urls
from automl.record.texts import fit_line, fit_text
from automl.tracking.view.run_update import clean_key

SHAPES = {
    "one word": "ab01",
    "a word of dashes": "-",
    "beginnings of addresses": "a://",
    "addresses without an end": "a://b:",
    "questions": "?a",
    "references": "${",
    "colons": ":",
    "names": "password=",
    "names, spaced": "password = ",
    "names in quotes": "token='",
    "calls": "token=a(",
    "flags": "--password ",
    "Bearer": "Bearer ",
    "tokens of three parts": "eyJabcdefghijk.",
    "private keys": "-----BEGIN PRIVATE KEY-----",
    "blanks": " ",
    "NUL": "\0",
    "escapes": "\x1b",
}


def made(piece: str, n_characters: int) -> str:
    """So many characters of a shape, and an end that makes the expressions look back at them."""
    end = "://@ password=x"
    return (piece * (n_characters // len(piece) + 1))[: n_characters - len(end)] + end


def milliseconds(function: Callable[[str], object], text: str, n_rounds: int) -> float:
    """Median of the CPU time: while an expression is matched, nothing else of the process runs."""
    seconds = []
    for _ in range(n_rounds):
        begun = time.process_time()
        function(text)
        seconds.append(time.process_time() - begun)
    return 1000 * statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    functions = (fit_line, fit_text, mask_urls, mask_credentials, clean_key)
    sys.stdout.write(f"| shape | {' | '.join(f.__name__ for f in functions)} |\n")
    sys.stdout.write("|---" * (1 + len(functions)) + "|\n")
    for name, piece in SHAPES.items():
        text = made(piece, arguments.characters)
        costs = [milliseconds(function, text, arguments.rounds) for function in functions]
        sys.stdout.write(f"| {name} | {' | '.join(f'{cost:.1f}' for cost in costs)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
