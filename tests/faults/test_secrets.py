"""Secrets planted wherever they can be: none is in any output, file, database, title or argv.

What an objective prints itself is in its trial's log as it is, and nowhere else.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import sql

from automl.record.study_files import StudyFiles
from tests.end_to_end.hostile import SECRETS
from tests.end_to_end.program import Done, Program, Running
from tests.end_to_end.proxy import Proxy
from tests.end_to_end.records import Records
from tests.end_to_end.server import free_port, serve
from tests.faults.conftest import NotePromise
from tests.postgres import Server, postgres

__all__ = ["postgres"]
pytestmark = pytest.mark.slow

SECRET = "s3cret"
"""All of them begin so."""
PRINTED = "s3cret-printed"
OWN_CONFIG = """
defaults: [sweep, _self_]
study:
  storage: {storage}
"""
COMMANDS = ("status", "list", "trials", "report", "status --json", "sync", "resume")


def test_no_secret_is_anywhere(
    program: Program, postgres: Server, note_promise: NotePromise
) -> None:
    url = postgres.url(postgres.new_database())
    storage = url.replace("postgres@", "postgres:s3cret-config@")
    (own := program.folder.parent / f"{program.folder.name}-own").mkdir()
    (own / "own.yaml").write_text(OWN_CONFIG.format(storage=storage))
    serve(program, port := free_port())
    basic = base64.b64encode(b"ann:s3cret-override").decode()
    with Proxy(port, doubles=False, wanted=f"Basic {basic}") as proxy:
        tracking = proxy.uri.replace("://", "://ann:s3cret-override@")
        program.environment |= SECRETS
        told = f"tracking.uri={tracking}"
        sweep = program.start_module(
            *("automl", "study.name=told", "study.n_trials=3", "admission.max_concurrent_trials=1"),
            *("--config-dir", str(own), "--config-name", "own", told, "devices.only=cpu"),
            *(
                "objective=python",
                "objective.target=tests.end_to_end.hostile:leaks",
                "space={x: 1}",
            ),
        )
        titles = "".join(seen_titles(sweep))
        said = [sweep.wait()]
        for command in COMMANDS:
            given = [told] if command == "sync" else []
            said.append(program.run(*command.split(), "study.name=told", *given))
    check_it_was_tried(program, said, titles)
    log = StudyFiles(program.folder / "studies" / "told").logs
    files = [path for path in program.folder.rglob("*") if path.is_file()]
    found = [str(path) for path in files if SECRET in content(path, printed=path.parent == log)]
    found += [row for row in rows(url) if SECRET in row]
    found += [line for line in titles.splitlines() if SECRET in line][:1]
    found += [f"{done}" for done in said if SECRET in done.stdout + done.stderr]
    note_promise("secrets in outputs, files, databases and titles", len(files), len(found))
    assert found == []


def check_it_was_tried(program: Program, said: list[Done], titles: str) -> None:
    """The secrets were used, and there is something to search."""
    sweep, *others, resumed = said
    assert "1 finished, 2 failed" in sweep.stdout, sweep.stdout + sweep.stderr
    assert "password=***" in sweep.stdout
    assert [done.code for done in others] == [0] * len(others), others
    assert (resumed.code, "credential" in resumed.stderr) == (2, True), resumed
    assert titles.count("automl") > 2
    runs = Records(program.folder, "told").trial_runs()
    assert runs[0].data.tags["note"] == "connects with password=***"
    assert runs[0].data.params["api_key"] == "***"


def seen_titles(sweep: Running) -> Iterator[str]:
    """Yield what `ps` shows of a sweep's processes while it runs; of itself, the name alone: what
    the user has typed is there to be seen."""
    main = psutil.Process(sweep.process.pid)
    own = main.cmdline()  # a child's, too, until it begins its own program
    while sweep.process.poll() is None:  # a look takes as long as a pause would
        with suppress(psutil.Error):
            yield f"{main.name()}\n"
            for child in main.children(recursive=True):
                yield f"{child.name()} {[word for word in child.cmdline() if word not in own]}\n"


def content(path: Path, *, printed: bool) -> str:
    text = path.read_bytes().decode(errors="replace")
    return text.replace(PRINTED, "") if printed else text


def rows(url: str) -> Iterator[str]:
    """Yield each row of each table in the database."""
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
        assert tables
        for (table,) in tables:
            query = sql.SQL("SELECT row::text FROM {} AS row").format(sql.Identifier(table))
            for (row,) in connection.execute(query):
                yield str(row)
