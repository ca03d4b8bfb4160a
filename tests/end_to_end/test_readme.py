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
from automl.cli.optuna_begin import begin_with_optuna
from automl.cli.wandb_begin import begin_with_wandb
from automl.config.command_arguments import argument_fields
from tests.cli.test_wandb_sweep import SWEEP as WANDB_SWEEP
from tests.manuals import MANUALS, ROOT, section, text
from tests.search.test_optuna_source import store

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
    """Lines of fenced blocks that begin with `make` or `python -m automl`, a `$` before or not;
    without those that a page shows as refused."""
    lines = []
    for block in re.findall(r"^```[^\n]*\n(.*?)^```", text(), re.DOTALL | re.MULTILINE):
        joined = re.sub(r"^\$ [^\n]*\nautoml: ", "", block.replace("\\\n", " "), flags=re.M)
        for line in joined.splitlines():
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
        if "old.db" in line:
            store("2.10.1", tmp_path)
        Path("sweep.yaml").write_text(WANDB_SWEEP)
        compose_command(begin_with_wandb(begin_with_optuna(arguments)))


def test_the_two_commands_of_the_first_screen_are_there() -> None:
    assert {"make sweep", "make test"} <= set(commands())
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^make check slow$", ci, re.MULTILINE)
    assert re.search(r"^check: .*\btest\b", MAKEFILE, re.MULTILINE), "CI runs what a user runs"


def glossary(page: str) -> list[str]:
    """Return the words of a page's glossary."""
    text = (ROOT / page).read_text("utf-8").split("meaning |\n", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\| (\w[^|]*) \| ", text, re.MULTILINE)


USERS_WORDS, CODES_WORDS = "docs/reference/words.md", "docs/contributing/words.md"


@pytest.mark.parametrize("page", [USERS_WORDS, CODES_WORDS])
def test_a_glossary_is_sorted_and_has_words_that_are_used(page: str) -> None:
    words = glossary(page)
    assert words == sorted(set(words), key=str.lower)
    texts = [path.read_text(encoding="utf-8") for path in PAGES if path != ROOT / page]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "automl").rglob("*.py")]
    used = "\n".join(texts).lower().replace("_", " ").replace("-", " ")
    assert [
        word
        for word in words
        if word.split(" (")[0].replace("-", " ").split()[-1].lower()[:-1] not in used
    ] == []


def test_a_word_is_in_one_glossary() -> None:
    users, codes = glossary(USERS_WORDS), glossary(CODES_WORDS)
    assert len(users) == 22, "a new word of users replaces one"
    assert len(codes) > 50
    assert set(users) & set(codes) == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) < 1800


def test_a_page_that_is_read_is_short() -> None:
    """Pages of the reference are looked into, and not read."""
    pages = [page for page in (ROOT / "docs").glob("*/*.md") if page.parent.name != "reference"]
    n_words = {page.name: len(page.read_text("utf-8").split()) for page in pages}
    glossary_of_code = Path(CODES_WORDS).name
    assert [name for name, n in n_words.items() if n > 700 and name != glossary_of_code] == [], (
        "a page of more than 700 words is two pages"
    )


def rows_with_figures(page: str) -> list[tuple[str, Path]]:
    """Return the cells with figures of a page's tables, and the pages that the rows name."""
    found = []
    for line in (ROOT / page).read_text("utf-8").splitlines():
        cells = line.strip("| ").split(" | ")
        link = re.search(r"\]\(([^)#]*experiments/[^)#]*)", cells[-1])
        if len(cells) == 3 and link:
            found.append((re.sub(r"\]\([^)]*\)", "]", cells[1]), (ROOT / page).parent / link[1]))
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/why/figures.md"])
def test_each_figure_is_in_the_experiment_that_it_names(page: str) -> None:
    rows = rows_with_figures(page)
    assert len(rows) >= 6
    for cell, experiment in rows:
        measured = re.findall(r"\d[\d,]*(?:\.\d+)?", experiment.read_text("utf-8"))
        for figure in re.findall(r"\d[\d,]*(?:\.\d+)?", cell):
            n_decimals = len(figure.partition(".")[2])
            shown = float(figure.replace(",", ""))
            rounded = {round(float(text.replace(",", "")), n_decimals) for text in measured}
            assert shown in rounded, f"{figure} of {cell!r} is not in {experiment}"


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
    page = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    index = page.split("\n## ", 1)[0]
    found = re.findall(r"^\| `(\w+)` \|", index, re.MULTILINE)
    assert sorted(found) == sorted({*LISTED_COMMANDS, "doctor"})


INTERNAL = {
    "objective.file": "what `automl.sweep` keeps of its function",
    "objective.parts": "what `automl.sweep` keeps of its function",
    "objective.suggests": "what `automl.sweep` keeps of its function",
    "data.rules": "the rules by which a stored study reads its table",
    "study.metric_function": "the function that `study.metric` has named",
    "study.metric_parts": "what `automl.fit` keeps of a metric's function",
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
