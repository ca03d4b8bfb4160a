"""The commands in the manuals are ones that exist, and so are the pages that they link to."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from automl.cli.arguments import parse
from automl.cli.command_dispatch import run
from automl.cli.command_registry import COMMANDS
from automl.cli.compose import compose
from tests.manuals import MANUALS, ROOT, text

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


OF_A_STUDY = (
    *(
        "resume",
        "sync",
        "evaluate",
        "export",
        "predict",
        "refit",
        "ensemble",
        "register",
        "release",
    ),
)
"""Commands that compose from what a study has stored."""


def commands() -> list[str]:
    """Lines of fenced blocks that begin with `make` or `python -m automl`, a `$` before or not."""
    lines = []
    for block in re.findall(r"^```[^\n]*\n(.*?)^```", text(), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = line.strip().removeprefix("$ ").removeprefix(".venv/bin/")
            if re.match(r"(make|python -m automl|automl)(\s|$)", words):
                lines.append(words)
    return lines


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_the_command_exists(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        for target in words[1:]:
            assert "=" in target or re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
        return
    monkeypatch.chdir(tmp_path)
    arguments = parse(words[3:] if words[0] == "python" else words[1:])
    if arguments.help or arguments.version or arguments.completion:
        assert run(arguments) == 0
    elif arguments.command in OF_A_STUDY:
        assert any(word.startswith("study.name=") for word in arguments.overrides)
    else:
        compose(arguments)


def test_the_two_commands_of_the_first_screen_are_there() -> None:
    assert {"make sweep", "make test"} <= set(commands())
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^make check slow$", ci, re.MULTILINE)
    assert re.search(r"^check: .*\btest\b", MAKEFILE, re.MULTILINE), "CI runs what a user runs"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", MANUALS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_manual_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = link.partition("#")
        if path.startswith(("http://", "https://")):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_of_the_commands_has_a_row_for_each() -> None:
    index = (ROOT / "automl" / "commands" / "README.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", index, re.MULTILINE)) == sorted(COMMANDS)
