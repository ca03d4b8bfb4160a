"""A transformer that learns to write numbers in English, letter by letter.

The text, the numbers from 0 to 1,999 in words, is made in this file, and its lines are shuffled:
most of them train, others validate. Rows are 48 letters, and the targets are the letters that come
next, so a row has 48 of them: the network gives scores of shape (rows, letters, 48), classes
second, as torch's cross entropy takes them. How the learning rate goes, and whether weights are
averaged, are searched for like any param; a trial ends early once it stops getting better.

$ python -m automl data=python data.source=character_transformer.py:parts \
    model=python model.target=character_transformer.py:Transformer study.name=letters \
    study.n_trials=6 sampler=random training.epochs=6 training.patience_epochs=2 \
    space='{width: 16, depth: 1, lr: {low: 3e-3, high: 3e-2, log: true}, batch_size: 64}' \
    space.schedule=constant,onecycle space.ema_decay=0.0,0.9
"""

import random

import torch
from torch import nn

ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
LETTERS = "\n -abcdefghijklmnopqrstuvwxyz"
CONTEXT = 48


def in_words(number: int) -> str:
    if number >= 100:
        count, rest = divmod(number, 1000 if number >= 1000 else 100)
        unit = "thousand" if number >= 1000 else "hundred"
        return f"{in_words(count)} {unit}" + (f" {in_words(rest)}" if rest else "")
    if number < 20:
        return ONES[number]
    tens, one = divmod(number, 10)
    return TENS[tens - 2] + (f"-{ONES[one]}" if one else "")


def rows_of(numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """(N, 48) letters, and (N, 48) those that follow them."""
    text = "\n".join(map(in_words, numbers))
    letters = torch.tensor([LETTERS.index(letter) for letter in text])
    n_rows = (len(letters) - 1) // CONTEXT
    x, y = letters[: n_rows * CONTEXT], letters[1 : n_rows * CONTEXT + 1]
    return x.view(n_rows, CONTEXT), y.view(n_rows, CONTEXT)


def parts() -> dict[str, object]:
    """What `data.source` names. Letters that a part lacks are letters too: `n_outputs` says so."""
    numbers = list(range(2000))
    random.Random(0).shuffle(numbers)  # seeded: every process must be given the same
    train, validation = numbers[:1600], numbers[1600:]
    return {
        "train": rows_of(train),
        "validation": rows_of(validation),
        "n_outputs": len(LETTERS),
    }


class Transformer(nn.Module):
    """Decoder only: a letter sees those before it."""

    def __init__(self, n_inputs: int, n_outputs: int, width: int = 32, depth: int = 2) -> None:
        """`n_inputs` is the length of a row, `n_outputs` the number of letters."""
        super().__init__()
        self.letters = nn.Embedding(n_outputs, width)
        self.places = nn.Parameter(0.02 * torch.randn(n_inputs, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, n_outputs))
        later = torch.ones(n_inputs, n_inputs, dtype=torch.bool).triu(1)
        self.register_buffer("later", torch.zeros(n_inputs, n_inputs).masked_fill(later, -1e9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.letters(x) + self.places
        for block in self.blocks:
            hidden = block(hidden, src_mask=self.later)
        scores: torch.Tensor = self.out(hidden)
        return scores.movedim(-1, 1)
