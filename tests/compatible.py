"""`make compatible`: try the package on other versions of Python and of its libraries.

Each environment is made anew below `.venv-compatible/`, away from `.venv`, and gets a few suites
that touch Hydra, Optuna, MLflow, torch and the stored studies. The rows of the environments that
were tried replace those in `docs/reference/versions.md`. A Python that is not on the machine is not
tried. The environment is removed once its suites have passed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv-compatible"
PAGE = ROOT / "docs" / "reference" / "versions.md"
SUITES = (
    "tests/end_to_end/test_stored_studies.py",
    "tests/end_to_end/test_sweep.py",
    "tests/api/test_package.py",
    "tests/cli/test_compose.py",
    "tests/search/test_study.py",
    "tests/models/test_predictor.py",
)
TESTERS = (
    "pytest>=8.3",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.120",
    "ipython>=8.31",
)
"""What the suites need besides the package."""
SHOWN = ("torch", "optuna", "mlflow", "hydra-core", "numpy", "pandas", "scikit-learn")
HEAD = ("environment", "Python", *SHOWN, "result", "tried on")
PASSED = re.compile(r"\d+ passed(, \d+ (skipped|deselected))*")
NO_PYTHON = "not on this machine"


@dataclass(frozen=True)
class Environment:
    """One column of the table: a Python and the versions that pip may choose from."""

    name: str
    python: str
    """The version of Python, as in `python3.11`."""
    is_lowest: bool
    """Whether each dependency has the lowest version that pyproject.toml allows."""


ENVIRONMENTS = (
    Environment("lowest", "3.11", is_lowest=True),
    Environment("newest-3.11", "3.11", is_lowest=False),
    Environment("newest-3.12", "3.12", is_lowest=False),
    Environment("newest-3.13", "3.13", is_lowest=False),
)


def lowest_versions(dependencies: Sequence[str]) -> list[str]:
    """Return a requirement for each dependency, of exactly the lowest version that it allows."""
    return [re.sub(r"^([\w.-]+)\s*[>=]=\s*([\w.]+).*$", r"\1==\2", text) for text in dependencies]


def constraints_of_others(requirements: Sequence[str]) -> str:
    """Return constraints.txt without the distributions that are required: pip has few to choose."""
    named = {re.split("[=>]", text)[0].lower() for text in requirements}
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if line.partition("==")[0].lower() not in named)


def table(rows: Mapping[str, Sequence[str]]) -> str:
    """Return the Markdown table of the environments, by name the cells of a row."""
    lines = [HEAD, ["---"] * len(HEAD), *((name, *cells) for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def stored_rows(page: str) -> dict[str, list[str]]:
    """Return the rows of the page's table, by the name of the environment its other cells."""
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {name: cells for name, *cells in lines[2:]}


def with_rows(page: str, rows: Mapping[str, Sequence[str]]) -> str:
    """Return the page with these rows in place of those of the same environments."""
    known = {**stored_rows(page), **rows}
    ordered = {e.name: known[e.name] for e in ENVIRONMENTS if e.name in known}
    return re.sub(r"(^\|.*\n)+", f"{table(ordered)}\n", page, count=1, flags=re.MULTILINE)


def try_environment(environment: Environment) -> list[str]:
    """Make the environment, run the suites in it, and return the cells of its row."""
    interpreter = _interpreter(environment.python)
    today = time.strftime("%Y-%m-%d")
    if interpreter is None:
        return [environment.python, *("" for _ in SHOWN), NO_PYTHON, today]
    folder = HOME / environment.name
    subprocess.run([interpreter, "-m", "venv", "--clear", folder], check=True)
    python = folder / "bin" / "python"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", *TESTERS]
    if environment.is_lowest:
        pins = lowest_versions(project["dependencies"])
        others = folder / "constraints.txt"
        others.write_text(constraints_of_others([*pins, *TESTERS]), encoding="utf-8")
        install += ["--constraint", str(others), *pins]
    if subprocess.run([*install, "--editable", str(ROOT)], check=False).returncode:
        return [environment.python, *("" for _ in SHOWN), "cannot be installed", today]
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-n", "2", *SUITES],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    sys.stdout.write(done.stdout)
    row = [environment.python, *_versions(python), _result(done.stdout), today]
    if has_passed(row):
        shutil.rmtree(folder)  # gigabytes
    return row


def has_passed(row: Sequence[str]) -> bool:
    """Return whether all suites of an environment have passed."""
    return PASSED.fullmatch(row[HEAD.index("result") - 1]) is not None


def _interpreter(version: str) -> str | None:
    """Return the Python of this version, or None. A command of pyenv may stand for one that is
    not chosen, and then fails."""
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "--version"], capture_output=True).returncode:
        return None
    return found


def _versions(python: Path) -> Iterator[str]:
    code = f"import importlib.metadata as m; print(*[m.version(n) for n in {SHOWN}], sep='\\n')"
    done = subprocess.run([python, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    yield from done.stdout.split()


def _result(output: str) -> str:
    """Return the counts of pytest's last line, without its time."""
    last = output.strip().splitlines()[-1]
    return re.sub(r" in .*$", "", last.strip("= "))


def main(names: Sequence[str]) -> int:
    """Try the environments of these names, or all; return 1 where a suite has failed."""
    chosen = [e for e in ENVIRONMENTS if not names or e.name in names]
    if not chosen:
        known = ", ".join(e.name for e in ENVIRONMENTS)
        raise SystemExit(f"ONLY={' '.join(names)}: there is no such environment; have: {known}.")
    rows: dict[str, list[str]] = {}
    for environment in chosen:
        row = rows[environment.name] = try_environment(environment)
        if NO_PYTHON not in row:
            page = with_rows(PAGE.read_text("utf-8"), {environment.name: row})
            PAGE.write_text(page, encoding="utf-8")
    sys.stdout.write(f"\n{table(rows)}\n")
    return 0 if all(map(has_passed, rows.values())) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
