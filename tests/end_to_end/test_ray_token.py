"""A Ray cluster that takes nobody without its token."""

from __future__ import annotations

import pytest

from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.trouble import trouble
from tests.execution.cluster.clusters import short_folder, started_head

pytestmark = pytest.mark.slow
TOKEN = "0123456789abcdef" * 4
WITH_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}


def test_a_sweep_trains_there_with_the_token_and_is_refused_without(program: Program) -> None:
    program.environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    words = ("tracking.uri=none", "execution=ray", "devices.only=cpu", "study.n_trials=2")
    with short_folder() as folder:
        with started_head(folder, environment=WITH_TOKEN) as address:
            there = (*words, f"ray.address={address}", *objective_words("counts"))
            refused = program.start("study.name=without", *there).wait()
            assert refused.code == 2, refused.stderr
            assert f"ray.address={address}: " in refused.stderr
            assert "RAY_AUTH_MODE=token" in refused.stderr
            assert not (program.folder / "studies" / "without").exists()
            program.environment |= WITH_TOKEN
            done = program.start("study.name=with", *there).wait()
            assert (done.code, trouble(done)) == (0, "")
            assert "with: 2 finished" in done.stdout
        for found in (folder, program.folder):
            files = [path for path in found.rglob("*") if path.is_file()]
            assert not [path for path in files if TOKEN.encode() in path.read_bytes()]
