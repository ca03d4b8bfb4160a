"""Tables of known kinds, each made by a small function of a random generator.

What decides the target is known of each, so that a tool that fails says at what. A function returns
the columns, with the target as `target`: texts are classes, numbers amounts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

Random: TypeAlias = np.random.Generator
Floats: TypeAlias = npt.NDArray[np.float64]
Kind: TypeAlias = Callable[[Random], pd.DataFrame]

KINDS: dict[str, Kind] = {}
"""By name."""
BY_TIME: dict[str, str] = {"drift": "day", "random-walk": "day"}
"""Whose rows come in an order: a test part is later than what was learned from."""
BY_GROUP: dict[str, str] = {"patients": "patient", "sensors": "sensor"}
"""Whose rows belong together: a test part has groups that were not learned from."""


def kind(function: Kind) -> Kind:
    KINDS[function.__name__.replace("_", "-")] = function
    return function


def numbers(x: Floats, target: Any) -> pd.DataFrame:
    """Columns x0, x1, … and the target."""
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
    return frame.assign(target=target)


def classes(random: Random, logit: Floats) -> npt.NDArray[np.str_]:
    """yes or no by chance, with that log-odds."""
    return np.where(random.random(len(logit)) < 1 / (1 + np.exp(-logit)), "yes", "no")


def scaled(values: Floats) -> Floats:
    return np.asarray((values - values.mean()) / values.std())


# --- classes ---


@kind
def linear(random: Random) -> pd.DataFrame:
    """All columns count a little: logistic regression is right."""
    x = random.normal(size=(2000, 20))
    return numbers(x, classes(random, 2 * scaled(x @ random.normal(size=20))))


@kind
def wide(random: Random) -> pd.DataFrame:
    """More columns than rows, ten of which count."""
    x = random.normal(size=(300, 500))
    return numbers(x, classes(random, 3 * scaled(x[:, :10] @ random.normal(size=10))))


@kind
def interactions(random: Random) -> pd.DataFrame:
    """Products of pairs, no column by itself."""
    x = random.normal(size=(3000, 10))
    products = sum(x[:, i] * x[:, i + 1] for i in range(0, 8, 2))
    return numbers(x, classes(random, 3 * scaled(np.asarray(products))))


@kind
def steps(random: Random) -> pd.DataFrame:
    """A sum of boxes with sharp borders along the axes: trees are right."""
    x = random.uniform(size=(3000, 8))
    logit = np.zeros(len(x))
    for _ in range(30):
        first, second = random.choice(8, size=2, replace=False)
        border = random.uniform(size=2)
        logit += random.normal() * ((x[:, first] > border[0]) & (x[:, second] > border[1]))
    return numbers(x, classes(random, 3 * scaled(logit)))


@kind
def xor(random: Random) -> pd.DataFrame:
    """The parity of three signs of ten, one row in twenty wrong."""
    x = random.uniform(-1, 1, size=(3000, 10))
    odd = (np.sign(x[:, :3]).prod(axis=1) > 0) ^ (random.random(len(x)) < 0.05)
    return numbers(x, np.where(odd, "odd", "even"))


@kind
def spirals(random: Random) -> pd.DataFrame:
    """Two arms around each other: smooth, curved, and no tree's friend."""
    turn = random.uniform(0.5, 3, size=1500) * np.pi
    arm = random.integers(2, size=1500)
    x = np.column_stack([np.cos(turn + np.pi * arm), np.sin(turn + np.pi * arm)]) * turn[:, None]
    return numbers(x + random.normal(scale=0.4, size=x.shape), np.where(arm > 0, "left", "right"))


@kind
def oblique(random: Random) -> pd.DataFrame:
    """Borders that are sharp, but along no axis."""
    x = random.normal(size=(3000, 12))
    sides = (x @ random.normal(size=(12, 3)) > 0).sum(axis=1)
    right = random.random(len(x)) < 0.95
    return numbers(x, np.where((sides >= 2) == right, "inside", "outside"))


@kind
def many_levels(random: Random) -> pd.DataFrame:
    """A category of 800 values, most of them rare, each with an effect of its own."""
    shop = np.minimum(random.zipf(1.3, size=5000), 800) - 1
    x = random.normal(size=(5000, 4))
    logit = random.normal(scale=1.5, size=800)[shop] + x[:, 0]
    return numbers(x, classes(random, logit)).assign(shop=[f"shop {i}" for i in shop])


@kind
def categories(random: Random) -> pd.DataFrame:
    """Eight categories of five values each, which count in pairs; no number."""
    codes = random.integers(5, size=(3000, 8))
    pairs = random.normal(size=(4, 5, 5))
    logit = sum(pairs[i][codes[:, 2 * i], codes[:, 2 * i + 1]] for i in range(4))
    frame = pd.DataFrame({f"c{i}": [f"v{code}" for code in codes[:, i]] for i in range(8)})
    return frame.assign(target=classes(random, np.asarray(2 * logit)))


@kind
def noise_columns(random: Random) -> pd.DataFrame:
    """Five columns of 200 count."""
    x = random.normal(size=(2000, 200))
    logit = x[:, 0] + x[:, 1] * x[:, 2] + np.abs(x[:, 3]) - (x[:, 4] > 0)
    return numbers(x, classes(random, 3 * scaled(logit)))


@kind
def missing_not_at_random(random: Random) -> pd.DataFrame:
    """Cells are missing the more, the larger they would be: that they are says something."""
    x = random.normal(size=(3000, 10))
    logit = 3 * scaled(x @ random.normal(size=10))
    target = classes(random, logit)
    hidden = random.random(x.shape) < 0.6 / (1 + np.exp(-3 * x))
    return numbers(np.where(hidden, np.nan, x), target)


@kind
def imbalanced(random: Random) -> pd.DataFrame:
    """Three rows in a hundred are of the rarer class."""
    x = random.normal(size=(6000, 12))
    logit = 2 * x[:, 0] + x[:, 1] * x[:, 2] - np.abs(x[:, 3]) - 5
    return numbers(x, classes(random, logit))


@kind
def many_classes(random: Random) -> pd.DataFrame:
    """Twelve classes, each of two clouds."""
    label = random.integers(12, size=3000)
    centres = random.normal(scale=1.6, size=(12, 2, 10))
    x = centres[label, random.integers(2, size=3000)] + random.normal(size=(3000, 10))
    return numbers(x, [f"class {i}" for i in label])


@kind
def wrong_labels(random: Random) -> pd.DataFrame:
    """One label in four is wrong."""
    x = random.normal(size=(3000, 8))
    right = (x[:, 0] + x[:, 1] ** 2 > 1) ^ (random.random(len(x)) < 0.25)
    return numbers(x, np.where(right, "yes", "no"))


@kind
def few_rows(random: Random) -> pd.DataFrame:
    """120 rows, of which a quarter is for the test."""
    x = random.normal(size=(120, 6))
    return numbers(x, classes(random, 2 * x[:, 0] - 2 * x[:, 1] + x[:, 2] * x[:, 3]))


@kind
def correlated(random: Random) -> pd.DataFrame:
    """Forty columns that are mixtures of five, which decide."""
    hidden = random.normal(size=(2500, 5))
    x = hidden @ random.normal(size=(5, 40)) + random.normal(scale=0.3, size=(2500, 40))
    logit = hidden[:, 0] * hidden[:, 1] + np.sin(2 * hidden[:, 2]) + hidden[:, 3]
    return numbers(x, classes(random, 3 * scaled(logit)))


@kind
def text_like_ids(random: Random) -> pd.DataFrame:
    """`AB-01234`: the letters decide, the digits are of no use and nearly all different."""
    letters = random.integers(12, size=(3000, 2))
    codes = [
        f"{'ABCDEFGHIJKL'[a]}{'ABCDEFGHIJKL'[b]}-{number:05}"
        for (a, b), number in zip(letters, random.integers(100_000, size=3000), strict=True)
    ]
    x = random.normal(size=(3000, 4))
    effect = random.normal(scale=1.5, size=(2, 12))
    logit = effect[0][letters[:, 0]] + effect[1][letters[:, 1]] + x[:, 0]
    return numbers(x, classes(random, logit)).assign(code=codes)


@kind
def words(random: Random) -> pd.DataFrame:
    """A text of twelve words, some of which say it."""
    vocabulary = [f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "re") for b in "bdfgklmnprstvz"]
    drawn = random.integers(len(vocabulary), size=(2000, 12))
    effect = random.normal(size=len(vocabulary)) * (random.random(len(vocabulary)) < 0.3)
    x = random.normal(size=(2000, 3))
    logit = 3 * scaled(effect[drawn].sum(axis=1)) + x[:, 0]
    texts = [" ".join(vocabulary[i] for i in row) for row in drawn]
    return numbers(x, classes(random, logit)).assign(text=texts)


@kind
def mixed(random: Random) -> pd.DataFrame:
    """As a census is: numbers, skewed amounts, categories and gaps, 12,000 rows."""
    n = 12_000
    age, hours = random.integers(17, 80, size=n), random.normal(40, 12, size=n).clip(1, 99)
    capital = np.where(random.random(n) < 0.1, random.lognormal(8, 1, size=n), 0).round()
    work, school = random.integers(7, size=n), random.integers(16, size=n)
    logit = (
        -((age - 48) ** 2) / 300 + hours / 15 + school / 3 + (capital > 5000) * 3
        + random.normal(size=7)[work] - 7
    )  # fmt: skip
    frame = pd.DataFrame({"age": age, "hours": hours.round(), "capital": capital})
    frame["work"] = pd.Series([f"work {i}" for i in work]).where(random.random(n) > 0.06)
    return frame.assign(school=[f"school {i}" for i in school], target=classes(random, logit))


# --- amounts ---


@kind
def friedman(random: Random) -> pd.DataFrame:
    """Friedman's first (1991), with five columns of noise."""
    x = random.uniform(size=(2000, 10))
    target = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    return numbers(x, target + 10 * x[:, 3] + 5 * x[:, 4] + random.normal(size=2000))


@kind
def linear_amount(random: Random) -> pd.DataFrame:
    """Ridge regression is right."""
    x = random.normal(size=(1500, 30))
    return numbers(x, x @ random.normal(size=30) + random.normal(scale=2, size=1500))


@kind
def heavy_tails(random: Random) -> pd.DataFrame:
    """A few rows are off by a hundred times what the others are."""
    x = random.normal(size=(3000, 8))
    target = x[:, 0] + np.abs(x[:, 1]) + x[:, 2] * x[:, 3]
    return numbers(x, 100 + 10 * target + 2 * random.standard_t(2, size=3000))


@kind
def skewed(random: Random) -> pd.DataFrame:
    """Prices: what adds up in the logarithm."""
    x = random.normal(size=(3000, 8))
    log_price = 10 + 0.6 * x[:, 0] + 0.3 * np.maximum(x[:, 1], 0) - 0.4 * x[:, 2] * (x[:, 3] > 0)
    return numbers(x, np.exp(log_price + random.normal(scale=0.3, size=3000)).round())


@kind
def periodic(random: Random) -> pd.DataFrame:
    """Waves of several lengths."""
    x = random.uniform(0, 10, size=(3000, 4))
    target = np.sin(3 * x[:, 0]) + 0.5 * np.sin(8 * x[:, 1]) + 0.3 * np.cos(x[:, 2] + x[:, 0])
    return numbers(x, target + random.normal(scale=0.2, size=3000))


@kind
def ratios(random: Random) -> pd.DataFrame:
    """What counts is one column divided by another."""
    x = random.lognormal(sigma=0.7, size=(3000, 8))
    target = x[:, 0] / x[:, 1] + 2 * x[:, 2] / (x[:, 3] + x[:, 4])
    return numbers(x, target + random.normal(scale=0.2, size=3000))


@kind
def uneven_noise(random: Random) -> pd.DataFrame:
    """How noisy a row is depends on a column of its own."""
    x = random.normal(size=(3000, 8))
    noise = np.exp(x[:, 4]) * random.normal(size=3000)
    return numbers(x, 3 * np.tanh(x[:, 0] + x[:, 1]) + x[:, 2] ** 2 + noise)


@kind
def counts(random: Random) -> pd.DataFrame:
    """Events per row, most of them none."""
    x = random.normal(size=(4000, 8))
    rate = np.exp(0.8 * x[:, 0] + 0.5 * (x[:, 1] > 0) - 0.5 * x[:, 2] * x[:, 3] - 1)
    return numbers(x, random.poisson(rate.clip(max=50)))


@kind
def calendar(random: Random) -> pd.DataFrame:
    """A date and an hour as text: weekday, season and the hour decide."""
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(17_520, size=3000), "h")
    x = random.normal(size=(3000, 3))
    target = 10 * np.sin(when.hour * np.pi / 12) + 8 * (when.day_of_week >= 5)
    target = target + 5 * np.cos(when.day_of_year * 2 * np.pi / 365) + 2 * x[:, 0]
    texts = when.strftime("%Y-%m-%d %H:%M")
    return numbers(x, target + random.normal(scale=2, size=3000)).assign(when=texts)


@kind
def drift(random: Random) -> pd.DataFrame:
    """What a column is worth changes from day to day; to be known are the days to come."""
    day = np.sort(random.integers(1000, size=4000))
    x = random.normal(size=(4000, 6))
    turn = day / 1000 * np.pi / 2
    target = np.cos(turn) * x[:, 0] + np.sin(turn) * x[:, 1] + x[:, 2] ** 2 + day / 500
    return numbers(x, target + random.normal(scale=0.5, size=4000)).assign(day=day)


# --- more classes; later ones stand last, since a table's number seeds it ---


@kind
def low_noise(random: Random) -> pd.DataFrame:
    """Five numbers and a curved border without noise: each row may need a leaf of its own."""
    x = random.normal(size=(4000, 5))
    return numbers(x, np.where(np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] > 0, "in", "out"))


@kind
def duplicated(random: Random) -> pd.DataFrame:
    """Each row stands there four times in the mean; copies of a row agree nine times in ten."""
    x = random.normal(size=(750, 8))[random.integers(750, size=3000)]
    right = (x[:, 0] * x[:, 1] + x[:, 2] > 0) ^ (random.random(3000) < 0.1)
    return numbers(x.round(2), np.where(right, "yes", "no"))


@kind
def loans(random: Random) -> pd.DataFrame:
    """Debt divided by income decides, and what a region and a product are together."""
    n = 4000
    income, debt = random.lognormal(10, 0.5, size=n), random.lognormal(9, 0.8, size=n)
    region, product = random.integers(6, size=n), random.integers(8, size=n)
    logit = 4 * np.tanh(3 * (debt / income - 0.4)) + 2 * random.normal(size=(6, 8))[region, product]
    frame = numbers(random.normal(size=(n, 4)), classes(random, logit))
    frame["income"], frame["debt"] = income.round(2), debt.round(2)
    frame["region"] = [f"region {code}" for code in region]
    return frame.assign(product=[f"product {code}" for code in product])


@kind
def random_walk(random: Random) -> pd.DataFrame:
    """How often the answer is yes wanders from day to day: rows of the same day tell each other."""
    day = np.sort(random.integers(300, size=3000))
    level = np.zeros(300)
    for i in range(1, 300):  # it wanders back, within some 1.3 of none
        level[i] = 0.95 * level[i - 1] + random.normal(scale=0.4)
    x = random.normal(size=(3000, 6))
    target = classes(random, level[day] + x[:, 0] + x[:, 1] * x[:, 2])
    return numbers(x, target).assign(day=day)


@kind
def patients(random: Random) -> pd.DataFrame:
    """Each of 150 patients has a bias of its own, and three numbers by which to be recognised."""
    patient = random.integers(150, size=3000)
    own, visit = random.normal(size=(150, 3)).round(2), random.normal(size=(3000, 4))
    logit = 1.5 * random.normal(size=150)[patient] + visit[:, 0] + visit[:, 1] * own[patient, 0]
    frame = numbers(np.column_stack([visit, own[patient]]), classes(random, logit))
    return frame.assign(patient=[f"p{number}" for number in patient])


@kind
def sensors(random: Random) -> pd.DataFrame:
    """The same of amounts: readings of 60 sensors, each off by a number of its own."""
    sensor = random.integers(60, size=2500)
    own, reading = random.normal(size=(60, 2)).round(2), random.normal(size=(2500, 5))
    target = 2 * random.normal(size=60)[sensor] + 2 * reading[:, 0] + np.abs(reading[:, 1])
    frame = numbers(np.column_stack([reading, own[sensor]]), target + random.normal(size=2500))
    return frame.assign(sensor=[f"s{number}" for number in sensor])


@kind
def even_levels(random: Random) -> pd.DataFrame:
    """A category of 400 values, all about as frequent, each with an effect of its own."""
    branch = random.integers(400, size=6000)
    x = random.normal(size=(6000, 4))
    logit = random.normal(scale=1.5, size=400)[branch] + x[:, 0] * x[:, 1]
    return numbers(x, classes(random, logit)).assign(branch=[f"branch {i}" for i in branch])


@kind
def even_levels_amount(random: Random) -> pd.DataFrame:
    """The same of amounts."""
    branch = random.integers(400, size=6000)
    x = random.normal(size=(6000, 4))
    target = random.normal(scale=1.5, size=400)[branch] + x[:, 0] * x[:, 1]
    frame = numbers(x, target + random.normal(size=6000))
    return frame.assign(branch=[f"branch {i}" for i in branch])
