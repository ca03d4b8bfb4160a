"""Arguments of commands that earlier versions had as settings: on a line, and in stored files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from automl.cli.arguments import parse_command_line
from automl.config.renamed import ARGUMENTS, drop_arguments
from automl.errors import ConfigError

LINES = [
    ("refit", "study.copy=true", "copy=true"),
    ("rename", "study.new_name=b", "name=b"),
    ("clone", "study.new_name=b", "name=b"),
    ("evaluate", "data.split_to=parts", "to=parts"),
    ("refit", "refit.trial=3", "which=3"),
    ("refit", "refit.members=none", "which=best"),
    ("refit", "refit.members=all", ""),
    ("refit", "refit.rows=all", "rows=all"),
    ("refit", "refit.hold_out=0.1", "hold_out=0.1"),
    ("release", "refit.n_seeds=8", "seeds=8"),
    ("refit", "refit.batch_size=auto", "batch_size=auto"),
    ("refit", "refit.check=false", "check=false"),
    ("refit", "refit.parallel=ddp", "parallel=ddp"),
    ("evaluate", "evaluate.trials=[3,7]", "which=3,7"),
    ("evaluate", "evaluate.model=refit", "which=refit"),
    ("evaluate", "evaluate.model=refit evaluate.trials=[3,7]", "which=refit,3,7"),
    ("evaluate", "evaluate.repeats=5", "seeds=5"),
    ("export", "export.trial=3", "which=3"),
    ("export", "export.model=trial", "which=best"),
    ("export", "export.model=trial export.trial=3", "which=3"),
    ("export", "export.model=auto", ""),
    ("export", "export.format=torch", "format=torch"),
    ("export", "export.to=out", "to=out"),
    ("export", "export.tune=true", "tune=true"),
    ("export", "export.tolerance=0.1", "tolerance=0.1"),
    ("predict", "predict.input=rows.csv", "table=rows.csv"),
    ("predict", "predict.output=scores.csv", "to=scores.csv"),
    ("predict", "predict.trial=3", "which=3"),
    ("predict", "predict.model=ensemble", "which=ensemble"),
    ("predict", "predict.members=2", "members=2"),
    ("predict", "predict.keep=[id]", "keep=[id]"),
    ("register", "register.name=houses", "as=houses"),
    ("register", "register.trial=3", "which=3"),
    ("register", "register.model=refit", "which=refit"),
    ("status", "status.trial=3", "trial=3"),
    ("compare", "compare.studies=[a,b]", "studies=[a,b]"),
    ("trials", "trials.format=json", "format=json"),
    ("trials", "trials.output=t.csv", "to=t.csv"),
    ("enqueue", "enqueue.params={lr: 0.1}", "params={lr: 0.1}"),
    ("enqueue", "enqueue.file=a.csv", "from=a.csv"),
    ("enqueue", "enqueue.outside=true", "outside=true"),
    ("stop", "stop.trial=3", "trial=3"),
    ("stop", "stop.outcome=interrupted", "as=interrupted"),
    ("ask", "ask.n=4", "n=4"),
    ("ask", "ask.lease_seconds=60", "lease=60"),
    ("tell", "tell.trial=3", "trial=3"),
    ("tell", "tell.value=0.5", "value=0.5"),
    ("tell", "tell.step=5", "step=5"),
    ("tell", "tell.steps={0: 0.5}", "steps={0: 0.5}"),
    ("tell", "tell.metrics={a: 0.5}", "metrics={a: 0.5}"),
    ("tell", "tell.state=failed", "state=failed"),
    ("tell", "tell.reason=why", "reason=why"),
    ("delete", "delete.yes=true", "yes=true"),
    ("archive", "archive.output=a.tar.gz", "to=a.tar.gz"),
    ("restore", "restore.input=a.tar.gz", "file=a.tar.gz"),
    ("ui", "ui.port=5001", "port=5001"),
]
"""Commands, their old words, and the arguments of today."""


@pytest.mark.parametrize(("command", "old", "argument"), LINES)
def test_an_old_word_is_an_argument_now(
    command: str, old: str, argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = re.split(" (?=[a-z]+\\.)", old)
    line = parse_command_line([command, "study.name=a", *words])
    assert line.overrides == ("study.name=a",)
    assert line.arguments == ((argument,) if argument else ())
    said = capsys.readouterr().err.splitlines()
    (advice,) = [one for one in said if "is now written" not in one]  # commands have old names, too
    expected = f"write {argument}" if argument else "leave it out"
    assert advice == f"automl: {old} is an old way to say it: {expected}."


def test_the_examples_above_have_each_old_key() -> None:
    typed = {key for _, old, _ in LINES for key in re.findall(r"([a-z_]+\.[a-z_]+)=", old)}
    assert typed == {old for row in ARGUMENTS for old in row.old}


@pytest.mark.parametrize(
    ("word", "other", "rule"),
    [
        ("evaluate.n_resamples=1000", "500", "1000 bootstrap samples"),
        ("refit.average=true", "false", "training.ema_decay"),
        ("refit.devices=all", "2", "devices.only"),
        ("predict.device=auto", "cpu", "devices.only=cpu"),
    ],
)
def test_what_is_no_argument_any_more_has_one_value(word: str, other: str, rule: str) -> None:
    key, command = word.partition("=")[0], word.partition(".")[0]
    line = parse_command_line([command, "study.name=a", word])
    assert (line.overrides, line.arguments) == (("study.name=a",), ())
    with pytest.raises(ConfigError, match=rf"^{key}={other}: this is no setting .*{rule}"):
        parse_command_line([command, f"{key}={other}"])


def test_a_stored_study_has_no_arguments() -> None:
    own: dict[str, Any] = {"study": {"name": "a"}, "space": {}, "training": {"epochs": 3}}
    sections = {
        section: dict.fromkeys(names)
        for section, names in {
            "evaluate": ("trials", "model", "n_resamples", "repeats"),
            "refit": ("trial", "members", "rows", "of", "average", "devices"),
            "predict": ("input", "output", "device", "keep"),
        }.items()
    }
    before = own | sections | {"which": "trial:3", "warm": False, "watch": False, "undo": False}
    before["study"] = {"name": "a", "copy": None, "new_name": None}
    assert drop_arguments(before) == own
    assert drop_arguments(own) == own


def test_the_studies_of_before_have_arguments_among_their_settings() -> None:
    """They are read by the test of stored studies; here is that they show what that is for."""
    files = Path(__file__).parents[1].glob("stored_studies/studies/*/config.yaml")
    sections = [set(yaml.safe_load(file.read_text())) for file in files]
    assert sum("refit" in found for found in sections) >= 2
