"""A dict of raw values becomes a label, or a value in the target's unit; automl is not needed.

    from reader import Model            # the model in the folder of this file
    model = Model()
    print(model({"age": 39, "workclass": "Private"}))   # every column that schema.json names

Needs numpy and onnxruntime for a model.onnx, else the torch that schema.json names.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import platform
import re
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Model:
    """What schema.json describes, opened. Call it with a row; threads may share it."""

    def __init__(self, folder: str | Path | None = None, threads: int | None = None) -> None:
        """`threads` of ONNX Runtime; None: as many as were the fastest when measured, else 1.
        Raises ValueError for a file that is not the one described, or that was made for another
        machine."""
        folder = Path(__file__).parent if folder is None else Path(folder)
        self.schema = json.loads((folder / "schema.json").read_text("utf-8"))
        refuse_other_machine(self.schema)
        file = folder / self.schema["file"]
        if hashlib.sha256(file.read_bytes()).hexdigest() != self.schema["digest"]:
            raise ValueError(f"{file} is not the file that schema.json describes: export it again.")
        threads = self.schema.get("threads", 1) if threads is None else threads
        self.scores: Callable[..., Any] = OPENERS[self.schema["format"]](file, threads)
        """Arrays `numbers` (N, …) and `codes` (N, …) in, (N, classes) or (N,) out."""
        self.classes = self.schema["classes"]
        self._missing = frozenset(self.schema["missing"])
        columns = self.schema["columns"]
        self._numbers = [(c["name"], c.get("part")) for c in columns if "categories" not in c]
        self._readings = self.schema.get("readings", {})
        self._said: Any = open_module(folder / "said.py") if self._readings else None
        kinds = [c for c in columns if "categories" in c]
        self._places = [
            (c["name"], {text: code for code, text in enumerate(c["categories"])}) for c in kinds
        ]
        self._codes = {c["name"] for c in kinds if c.get("verbatim")}
        self._codes |= {name for name, r in self._readings.items() if r.get("verbatim")}

    def __call__(self, row: Mapping[str, Any]) -> Any:
        """The label, or the value. Raises KeyError for a column that the row lacks, ValueError for
        a text where a number was."""
        answer = self.scores(**self.arrays(row))[0]
        if not self.classes:
            return float(answer)
        threshold = self.schema.get("threshold")
        place = answer.argmax() if threshold is None else int(answer[1] > threshold)
        return self.classes[place]

    def probabilities(self, row: Mapping[str, Any]) -> dict[Any, float]:
        """By label; empty for a value."""
        answer = np.ravel(self.scores(**self.arrays(row))[0]).tolist()
        return dict(zip(self.classes, answer, strict=True)) if self.classes else {}

    def arrays(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What the model takes of one row; columns that it does not know are left."""
        taken: dict[str, Any] = {}
        if self._numbers:
            numbers = [
                self._made(row[name], name, part) if part else self._number(row[name], name)
                for name, part in self._numbers
            ]
            taken["numbers"] = np.array([numbers])
        if self._places:
            codes = [places.get(self._category(row[n], n), -1) for n, places in self._places]
            taken["codes"] = np.array([codes])
        return taken

    def _made(self, cell: Any, name: str, part: str) -> float:
        """A part of a date, a number in a text, or how frequent a category was."""
        reading = self._readings[name]
        if part == "frequency":
            return math.log1p(reading["counts"].get(self._category(cell, name), 1))
        return float(self._said.number_of(cell, reading, part, self._missing))

    def _number(self, cell: Any, name: str) -> float:
        """NaN: it is missing. Times are seconds, since 1970."""
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
        """The text of a cell. Codes, such as "007", stay as they are written: raises ValueError for
        one that is given as a number."""
        text = str(cell).strip()
        if name not in self._codes or text in self._missing:
            return self._text(cell)
        if not isinstance(cell, str):
            raise ValueError(f'{name}={cell!r}: a text as in the table is needed, such as "007".')
        return text

    def _text(self, cell: Any) -> str:
        """The one spelling: 1, 1.0 and " 1" are one category; missing cells are ""."""
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


def open_module(file: Path) -> Any:
    """Leaves no compiled file beside it, as an import would."""
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
    import torch_tensorrt  # noqa: F401  # what the file holds is its

    return wrap_torch_module(torch.export.load(file).module(), "cuda")


def wrap_torch_module(module: Callable[..., Any], device: str) -> Callable[..., Any]:
    import torch

    def scores(**arrays: Any) -> Any:
        given = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
        with torch.inference_mode():
            return module(**given).cpu().numpy()

    return scores


OPENERS = {"onnx": open_onnx, "torch": open_torch, "aoti": open_aoti, "tensorrt": open_tensorrt}


def refuse_other_machine(schema: Mapping[str, Any]) -> None:
    """Raises ValueError where the file was compiled for what is not here."""
    for key, here in machine_properties(schema["bound_to"]).items():
        there = schema["machine"][key]
        lacking = sorted(set(there) - set(here)) if isinstance(there, list) else [there]
        if lacking and there != here:
            raise ValueError(
                f"This model was made for another machine: its {key} {', '.join(lacking)} is not "
                "here. Export it here, or with export.format=onnx, which runs anywhere."
            )


def machine_properties(keys: Iterable[str]) -> dict[str, Any]:
    """What of this machine a compiled model may depend on."""
    return {key: MACHINE[key]() for key in keys}


def cpu_features() -> list[str]:
    """Instructions that compilers use, as Linux names them; none where it is not Linux."""
    file = Path("/proc/cpuinfo")
    said = (
        re.search(r"^(flags|Features)\s*:(.*)$", file.read_text(), re.M) if file.exists() else None
    )
    used = (
        r"(s*sse|avx|fma|bmi|amx|f16c|popcnt|abm|movbe|v?aes|sha|gfni|v?pclmul|adx|asimd|sve|sme)"
    )
    return sorted(word for word in (said[2].split() if said else ()) if re.match(used, word))


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
