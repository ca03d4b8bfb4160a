"""The commands in the manuals are ones that exist, and so are the pages that they link to."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_registry import LISTED_COMMANDS
from automl.cli.command_steps import compose_command
from automl.cli.config_keys import all_config_keys
from automl.cli.option_answers import answer_option
from automl.config.command_arguments import argument_fields
from tests.manuals import MANUALS, ROOT, section, text

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PAGES = sorted({*MANUALS, *(ROOT / "experiments").glob("*/*.md")})


OF_A_STUDY = (
    *(
        "resume",
        "rename",
        "delete",
        "enqueue",
        "edit",
        "stop",
        "pause",
        "tell",
        "sync",
        "evaluate",
        "export",
        "predict",
        "refit",
        "ensemble",
        "register",
        "release",
        "clone",
    ),
)
"""Commands that compose from what a study has stored."""
OF_A_STUDY_OR_NONE = ("ui", "plan")
"""Commands that do so where the line names a study."""


def commands() -> list[str]:
    """Lines of fenced blocks that begin with `make` or `python -m automl`, a `$` before or not."""
    lines = []
    for block in re.findall(r"^```[^\n]*\n(.*?)^```", text(), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = line.strip().removeprefix("$ ").removeprefix(".venv/bin/")
            if re.match(r"(make|python -m automl|automl)(\s|$)", words):
                lines.append(words)
    return lines


def anchor_of(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_the_command_exists(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        for target in words[1:]:
            assert "=" in target or re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
        return
    monkeypatch.chdir(tmp_path)
    arguments = parse_command_line(words[3:] if words[0] == "python" else words[1:])
    is_named = any(word.startswith("study.name=") for word in arguments.overrides)
    if arguments.help or arguments.version or arguments.completion:
        assert answer_option(arguments) == 0
    elif arguments.command in OF_A_STUDY:
        assert is_named
    elif not (arguments.command in OF_A_STUDY_OR_NONE and is_named):
        compose_command(arguments)


def test_the_two_commands_of_the_first_screen_are_there() -> None:
    assert {"make sweep", "make test"} <= set(commands())
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^make check slow$", ci, re.MULTILINE)
    assert re.search(r"^check: .*\btest\b", MAKEFILE, re.MULTILINE), "CI runs what a user runs"


def test_the_glossary_is_sorted_and_has_words_that_the_pages_use() -> None:
    words = re.findall(r"^\| (\S[^|]*) \| ", section("Words"), re.MULTILINE)[1:]
    assert words == sorted(set(words), key=str.lower)
    pages = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
    used = pages.replace(section("Words"), "").lower()
    assert [word for word in words if word[:-1].lower() not in used] == []  # families, probed


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_leads_to_a_file_and_a_section_that_are_there(page: Path) -> None:
    written = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for place, _, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(#([^)\s]*))?\)", written):
        target = page.parent / place if place else page
        assert target.exists(), place
        if anchor:
            lines = re.sub(r"^```.*?^```", "", target.read_text("utf-8"), flags=re.M | re.S)
            titles = re.findall(r"^#+ (.*)$", lines, re.MULTILINE)
            assert anchor in [anchor_of(title) for title in titles], f"{place}#{anchor}"


def test_the_index_of_the_commands_has_a_row_for_each() -> None:
    index = (ROOT / "automl" / "commands" / "README.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", index, re.MULTILINE)) == sorted(LISTED_COMMANDS)


INTERNAL = {
    "objective.file": "what `automl.sweep` keeps of its function",
    "objective.parts": "what `automl.sweep` keeps of its function",
    "data.rules": "the rules by which a stored study reads its table",
    "study.began_with": "what `from=` has stored",
    "study.n_edits": "how many edits a stored config of a shared study has",
    "study.relative_to": "where a stored study's paths begin",
}
"""Settings that no user sets, each with the reason."""


def test_every_setting_command_and_exit_code_is_in_a_manual() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in MANUALS)
    settings = [key for key in all_config_keys() if "." in key and key not in INTERNAL]
    rows = set(re.findall(r"`(\w+)[=`]", pages))
    assert [key for key in settings if key not in pages and key.split(".")[1] not in rows] == []
    assert [name for name in LISTED_COMMANDS if f"`{name}`" not in pages] == []
    arguments = {word for c in LISTED_COMMANDS.values() for word in argument_fields(c.arguments)}
    assert {word for word in arguments - rows if f"`--{word}`" not in pages} == set()
    codes = section("Exit codes").split("\n## ")[0]
    assert all(re.search(rf"\b{code}\b", codes) for code in (0, 1, 2, 130, 143)), codes
