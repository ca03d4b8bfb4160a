"""Predicts a label, or a value in the target's unit, from a dict of raw values, without automl.

    from reader import Model            # the model in the folder of this file
    model = Model()
    print(model({"age": 39, "workclass": "Private"}))   # every column that schema.json names

It needs numpy, and onnxruntime for a model.onnx, else the version of torch that schema.json names.
An export contains a copy of this file.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import math
import platform
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np


class Model:
    """The model that schema.json describes. Call it with a row; threads may share it."""

    _truths: Set[str] = frozenset()
    """The names of the columns of truth values."""

    def __init__(self, folder: str | Path | None = None, threads: int | None = None) -> None:
        """Open the model in `folder`; None is the folder of this file.

        `threads` are those of ONNX Runtime; None takes the number that was measured as the fastest,
        else 1. Raises ValueError for a file that is not the one described, or that was made for
        another machine.
        """
        folder = Path(__file__).parent if folder is None else Path(folder)
        self.schema = json.loads((folder / "schema.json").read_text("utf-8"))
        refuse_other_machine(self.schema)
        file = folder / self.schema["file"]
        if hashlib.sha256(file.read_bytes()).hexdigest() != self.schema["digest"]:
            raise ValueError(f"{file} is not the file that schema.json describes: export it again.")
        threads = self.schema.get("threads", 1) if threads is None else threads
        self.scores: Callable[..., Any] = OPENERS[self.schema["format"]](file, threads)
        """Takes the arrays `numbers` (N, …) and `codes` (N, …), returns (N, classes) or (N,)."""
        self.classes = self.schema["classes"]
        self._missing = frozenset(self.schema["missing"])
        columns = self.schema["columns"]
        self._numbers = [(c["name"], c.get("part")) for c in columns if "categories" not in c]
        self._readings = self.schema.get("readings", {})
        self._text_values: Any = open_module(folder / "said.py") if self._readings else None
        categorical = [c for c in columns if "categories" in c]
        self._codes_of_texts = [
            (c["name"], {text: code for code, text in enumerate(c["categories"])})
            for c in categorical
        ]
        self._levels = {
            name: {text: float(level) for level, text in enumerate(sorted(reading["counts"]))}
            for name, reading in self._readings.items()
            if "counts" in reading
        }
        self._topics = {
            name: decode_topics(reading)
            for name, reading in self._readings.items()
            if reading["kind"] == "text"
        }
        self._combined = self.schema.get("combined", [])
        self._verbatim = {c["name"] for c in categorical if c.get("verbatim")}
        self._verbatim |= {name for name, r in self._readings.items() if r.get("verbatim")}
        known = {c["name"]: c["categories"] for c in categorical}
        known |= {name: [*levels] for name, levels in self._levels.items() if name not in known}
        truths = {"", *TRUTH_BY_NUMBER.values()}
        self._truths = {name for name, texts in known.items() if truths.issuperset(texts)}

    def __call__(self, row: Mapping[str, Any]) -> Any:
        """Return the label or the value of a row.

        Raises KeyError for a column that the row lacks, and ValueError for a text in a column of
        numbers.
        """
        answer = self.scores(**self.arrays(row))[0]
        if not self.classes:
            return float(answer)
        threshold = self.schema.get("threshold")
        if isinstance(threshold, list):  # of more than two classes, one for each
            answer, threshold = answer / np.array(threshold), None
        place = answer.argmax() if threshold is None else int(answer[1] > threshold)
        return self.classes[place]

    def probabilities(self, row: Mapping[str, Any]) -> dict[Any, float]:
        """Return the probability of each label; empty for a model of values."""
        answer = np.ravel(self.scores(**self.arrays(row))[0]).tolist()
        return dict(zip(self.classes, answer, strict=True)) if self.classes else {}

    def arrays(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model's inputs for one row; other columns of the row are ignored."""
        inputs: dict[str, Any] = {}
        if self._numbers:
            topics = self._topics_of(row)
            numbers = [
                topics[name, part]
                if name in self._topics
                else self._derived_number(plain_cell(row[name]), name, part)
                if part
                else self._number(plain_cell(row[name]), name)
                for name, part in self._numbers
            ]
            numbers += [
                combine_numbers(numbers, c) for c in self._combined if "categories" not in c
            ]
            inputs["numbers"] = np.array([numbers])
        if self._codes_of_texts:
            codes = [
                codes_of_texts.get(self._category(plain_cell(row[name]), name), -1)
                for name, codes_of_texts in self._codes_of_texts
            ]
            codes += [self._crossed(codes, c) for c in self._combined if "categories" in c]
            inputs["codes"] = np.array([codes])
        return inputs

    def _crossed(self, codes: Sequence[int], column: Mapping[str, Any]) -> int:
        """Return the code of a crossed category, or -1; its texts are the codes of both sides."""
        n_known = [len(codes_of_texts) for _, codes_of_texts in self._codes_of_texts]
        sides = [codes[i] if codes[i] >= 0 else n_known[i] for i in column["places"]]
        categories: list[str] = column["categories"]
        text = f"{sides[0]},{sides[1]}"
        return categories.index(text) if text in categories else -1

    def _derived_number(self, cell: Any, name: str, part: str) -> float:
        """Return a part of a date, a number in a text, or the frequency or level of a category.

        A level is the place of a category among all that were counted; the model has a mean of it.
        """
        reading = self._readings[name]
        if part.startswith("target"):
            levels = self._levels[name]
            return levels.get(self._category(cell, name), float(len(levels)))
        if part == "frequency":
            return math.log1p(reading["counts"].get(self._category(cell, name), 1))
        return float(self._text_values.number_of(cell, reading, part, self._missing))

    def _topics_of(self, row: Mapping[str, Any]) -> dict[tuple[str, str], float]:
        """Return the topics of the texts in a row, by column and part."""
        return {
            (name, f"topic{place}"): topic
            for name, (idf, components) in self._topics.items()
            for place, topic in enumerate(
                topics_of_words(
                    self._text_values.count_words(plain_cell(row[name]), len(idf)), idf, components
                )
            )
        }

    def _number(self, cell: Any, name: str) -> float:
        """Return the number in a cell, or NaN if it is missing. Times are seconds since 1970."""
        if type(cell) is float or type(cell) is int:
            return float(cell)
        if str(cell).strip() in self._missing:
            return np.nan
        if isinstance(cell, datetime.timedelta):
            return cell.total_seconds()
        if isinstance(cell, datetime.datetime):
            return cell.replace(tzinfo=cell.tzinfo or datetime.UTC).timestamp()
        try:
            number = np.nan if isinstance(cell, str) and "_" in cell else float(cell)
        except (TypeError, ValueError):
            number = np.nan
        if number != number:
            raise ValueError(f"{name}={cell!r}: a number is needed, or nothing.")
        return number

    def _category(self, cell: Any, name: str) -> str:
        """Return the text of a cell in the one spelling of its category.

        In a column of truth values 1 and 0 are True and False. Codes such as "007" stay as they
        are written. Raises ValueError for a code that is a number.
        """
        text = str(cell).strip()
        if name not in self._verbatim or text in self._missing:
            spelled = self._text(cell)
            return TRUTH_BY_NUMBER.get(spelled, spelled) if name in self._truths else spelled
        if not isinstance(cell, str):
            raise ValueError(f'{name}={cell!r}: a text as in the table is needed, such as "007".')
        return text

    def _text(self, cell: Any) -> str:
        """Return the one spelling: 1, 1.0 and " 1" are one category; missing cells are ""."""
        text = str(cell).strip()
        if text in self._missing or text.lower() in ("true", "false"):
            return "" if text in self._missing else text.title()
        try:
            number = float("no" if "_" in text else cell)
        except (TypeError, ValueError):
            return text
        if number != number or abs(number) >= 2**53:
            return text
        return str(int(number)) if number.is_integer() else repr(number)


TRUTH_BY_NUMBER = {"1": "True", "0": "False"}


def plain_cell(cell: Any) -> Any:
    """Return an integer that is too large for a float as a text, and other cells as they are."""
    is_too_large = isinstance(cell, int) and cell.bit_length() > 1023
    return str(Decimal(cell)) if is_too_large else cell


LARGEST_NUMBER = float(np.finfo(np.float32).max)
"""The largest number; one beyond it counts as missing."""
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}


def combine_numbers(numbers: Sequence[float], column: Mapping[str, Any]) -> float:
    """Return the number of a combined column, or NaN if one of its numbers is missing."""
    sides = [numbers[i] if abs(numbers[i]) <= LARGEST_NUMBER else np.nan for i in column["places"]]
    with np.errstate(all="ignore"):
        return float(reduce(OPERATIONS[column["operation"]], map(np.float64, sides)))


def decode_topics(reading: Mapping[str, str]) -> tuple[Any, Any]:
    """Return the weight of each bucket of words, and the share of each bucket in each topic."""
    idf = np.frombuffer(base64.b64decode(reading["idf"]), "<f4").astype(np.float64)
    components = np.frombuffer(base64.b64decode(reading["components"]), "<f2").astype(np.float64)
    return idf, components.reshape(-1, len(idf))


def topics_of_words(words: Mapping[int, int], idf: Any, components: Any) -> list[float]:
    """Return the topics of a text with these counts of words; without a known word all are 0."""
    buckets = np.array([*words], dtype=np.intp)
    weights = (1 + np.log(np.array([*words.values()], dtype=np.float64))) * idf[buckets]
    topics: list[float] = (components[:, buckets] @ weights).tolist()
    length = math.sqrt(float(weights @ weights)) or 1.0
    return [topic / length for topic in topics]


def open_module(file: Path) -> Any:
    """Return a file as a module, without the compiled file that an import would leave."""
    module = types.ModuleType(file.stem)
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), module.__dict__)
    return module


def open_onnx(file: Path, threads: int) -> Callable[..., Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"])
    return lambda **arrays: session.run(None, arrays)[0]


def open_torch(file: Path, threads: int) -> Callable[..., Any]:
    import torch

    return wrap_torch_module(torch.export.load(file).module(), "cpu")


def open_aoti(file: Path, threads: int) -> Callable[..., Any]:
    import torch

    return wrap_torch_module(torch._inductor.aoti_load_package(str(file)), "cpu")


def open_tensorrt(file: Path, threads: int) -> Callable[..., Any]:
    import torch
    import torch_tensorrt  # noqa: F401  # the file holds its operators

    return wrap_torch_module(torch.export.load(file).module(), "cuda")


def wrap_torch_module(module: Callable[..., Any], device: str) -> Callable[..., Any]:
    import torch

    def scores(**arrays: Any) -> Any:
        inputs = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
        with torch.inference_mode():
            return module(**inputs).cpu().numpy()

    return scores


OPENERS = {"onnx": open_onnx, "torch": open_torch, "aoti": open_aoti, "tensorrt": open_tensorrt}


def refuse_other_machine(schema: Mapping[str, Any]) -> None:
    """Raise ValueError if the file was compiled for properties that this machine lacks."""
    for key, available in machine_properties(schema["bound_to"]).items():
        needed = schema["machine"][key]
        lacking = sorted(set(needed) - set(available)) if isinstance(needed, list) else [needed]
        if lacking and needed != available:
            raise ValueError(
                f"This model was made for another machine: its {key} {', '.join(lacking)} is not "
                "here. Export it here, or with format=onnx, which runs anywhere."
            )


def machine_properties(keys: Iterable[str]) -> dict[str, Any]:
    """Return properties of this machine on which a compiled model may depend."""
    return {key: MACHINE[key]() for key in keys}


def cpu_features() -> list[str]:
    """Return the instructions that compilers use, as Linux names them; none on other systems."""
    file = Path("/proc/cpuinfo")
    flags = (
        re.search(r"^(flags|Features)\s*:(.*)$", file.read_text(), re.M) if file.exists() else None
    )
    used = (
        r"(s*sse|avx|fma|bmi|amx|f16c|popcnt|abm|movbe|v?aes|sha|gfni|v?pclmul|adx|asimd|sve|sme)"
    )
    return sorted(word for word in (flags[2].split() if flags else ()) if re.match(used, word))


def torch_version() -> str:
    import torch

    return ".".join(torch.__version__.split(".")[:2])


def gpu() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"


MACHINE: dict[str, Callable[[], Any]] = {
    "system": platform.system,
    "machine": platform.machine,
    "cpu_features": cpu_features,
    "torch": torch_version,
    "gpu": gpu,
}
