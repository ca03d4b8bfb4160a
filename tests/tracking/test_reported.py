"""The page of a study among the artifacts of its run: the newest one, and only a file of its."""

from __future__ import annotations

from pathlib import Path

from automl.trial import ReportWritten
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver
from tests.tracking.scenes import BEGUN, write
from tests.tracking.test_ensembled import SWEEP, files

PAGE = "report.html"


def test_the_newest_page_is_an_artifact_of_the_study(study: Path, shown: Shown) -> None:
    for number, page in enumerate((b"first", b"second")):
        (study / PAGE).write_bytes(page)
        write(study, *(SWEEP if not number else ()), ReportWritten(BEGUN + 1000 + number))
        assert deliver(study) == []
        assert files(shown)[PAGE] == page


def test_a_page_that_is_a_link_is_not_sent(study: Path, shown: Shown, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (study / PAGE).symlink_to(secret)
    write(study, *SWEEP, ReportWritten(BEGUN + 1000))
    assert deliver(study) == []
    assert PAGE not in files(shown)
