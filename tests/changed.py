"""Print the test files that are near to what a change touched (`make check changed=true`).

A test file is near to a module that it reaches by at most `MAX_IMPORTS` imports; a text such as
`"automl.a.b:function"` counts as an import. Some tests are near to every change. CI runs all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path

from tests.test_layers import imported

ROOT = Path(__file__).parents[1]
MAX_IMPORTS = 2
ALWAYS = (
    "tests/test_layers.py",
    "tests/test_style.py",
    "tests/end_to_end/test_command.py",
    "tests/end_to_end/test_resume.py",
    "tests/end_to_end/test_sweep.py",
)
"""What nearly every change can break."""
BY_TEXT = {
    r".*\.md": ("tests/docs", "tests/end_to_end/test_readme.py", "tests/test_manual_lists.py"),
    r"docs/.*\.py|automl/(config|cli|trial)/.*|automl/__init__\.py": ("tests/docs",),
    r"conf/.*\.yaml": ("tests/cli", "tests/test_manual_lists.py"),
    r"pyproject\.toml|constraints\.txt|Makefile": (
        "tests/docs",
        "tests/test_makefile.py",
        "tests/test_wheel.py",
    ),
    r"experiments/recipes/.*": ("tests/recipes",),
    r"experiments/.*": ("tests/experiments", "tests/test_experiments.py"),
}
"""The tests that read files which are no modules, by a pattern of their paths."""
ENTRY = re.compile(r"""["']((?:automl|tests)(?:\.\w+)+)(?::\w+)?["']""")


def module_files() -> dict[str, Path]:
    """Return the modules of the package and of its tests, by their dotted names."""
    found = {}
    for folder in ("automl", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def named_modules(source: str, modules: Set[str]) -> set[str]:
    """Return the modules that a source text imports or names in a text of its own."""
    return imported(source, modules) | (set(ENTRY.findall(source)) & modules)


@cache
def named_by_module() -> Mapping[str, Set[str]]:
    """Return what each module of the package and of its tests names."""
    files = module_files()
    return {n: named_modules(path.read_text("utf-8"), set(files)) for n, path in files.items()}


def near_modules(
    changed: Iterable[str], named_by: Mapping[str, Set[str]], max_imports: int = MAX_IMPORTS
) -> set[str]:
    """Return the changed modules and all that reach one by at most `max_imports` imports.

    `named_by` has the modules that each module imports.
    """
    importers = defaultdict(set)
    for name, others in named_by.items():
        for other in others:
            importers[other].add(name)
    near, edge = set(changed), set(changed)
    for _ in range(max_imports):
        edge = {importer for name in edge for importer in importers[name]} - near
        near |= edge
    return near


def changed_paths(base: str) -> list[str]:
    """Return the files that differ from where this branch left `base`, new ones included."""
    fork = _git("merge-base", "HEAD", base)[0]
    if fork == _git("rev-parse", "HEAD")[0] and not _git("status", "--porcelain"):
        fork = "HEAD~1"  # nothing differs: the last commit is meant
    return [*_git("diff", "--name-only", fork), *_git("ls-files", "--others", "--exclude-standard")]


def near_tests(paths: Iterable[str]) -> Iterator[str]:
    """Yield the test files and folders near to the changed paths, those that always run first."""
    names = {str(path.relative_to(ROOT)): name for name, path in module_files().items()}
    near = near_modules({names[path] for path in paths if path in names}, named_by_module())
    tests = {path for path, name in names.items() if name in near and "/test_" in path}
    for pattern, others in BY_TEXT.items():
        if any(re.fullmatch(pattern, path) for path in paths):
            tests |= set(others)
    yield from ALWAYS
    yield from sorted(tests - set(ALWAYS))


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.stdout.write(" ".join(near_tests(changed_paths(os.environ.get("BASE", "main")))) + "\n")
