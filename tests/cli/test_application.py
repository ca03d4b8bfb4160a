"""A Hydra application's config with ours as a part of it: how it composes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, open_dict

from automl.cli.arguments import CommandLine, parse_command_line
from automl.cli.command_registry import conf_dir
from automl.cli.command_steps import compose_command
from automl.cli.compose import ComposedConfig
from automl.cli.hydra_application import (
    application_base_config,
    application_study_name,
    register_configs,
)
from automl.cli.schemas import DEFAULT_SPACE
from automl.errors import ConfigError
from automl.models.families.mlp.family import Growth, MLPFamily
from tests.cli.test_conf import FILES, NEEDED

OWN = """
defaults: [/sweep@tuning.automl, /data: mine, _self_]
epochs: 3
folder: {data: here, store: '${oc.env:STORE}'}
"""
Application = Callable[..., DictConfig]


@pytest.fixture
def application(folder: Path) -> Iterator[Application]:
    """Composes an application's config, with overrides, in Hydra's own way."""
    (folder / "conf" / "data").mkdir(parents=True)
    (folder / "conf" / "data" / "mine.yaml").write_text("rows: 7\n")
    (folder / "conf" / "own.yaml").write_text(OWN)
    register_configs()

    def composed(*overrides: str) -> DictConfig:
        return hydra.compose("own", list(overrides))

    with hydra.initialize_config_dir(str(folder / "conf"), version_base="1.3"):
        yield composed


def given(config: object, *overrides: str) -> ComposedConfig:
    return compose_command(CommandLine("sweep", overrides), config)


def contents(config: DictConfig) -> Any:
    return OmegaConf.to_container(config, enum_to_str=True)


def several_at_once(files: Sequence[Path]) -> list[list[Path]]:
    """Each file in one list, none with another of its group: a config has one of each group."""
    groups = [list(of_one) for _, of_one in groupby(files, lambda file: file.parent)]
    return [[file for file in row if file is not None] for row in zip_longest(*groups)]


@pytest.mark.parametrize("files", several_at_once(FILES), ids=lambda files: files[0].stem)
def test_options_compose_below_any_package_as_they_do_alone(
    application: Application, files: Sequence[Path]
) -> None:
    options = [(file.parent.name, file.stem) for file in files]
    below = application(*(f"{group}@tuning.automl.{group}={name}" for group, name in options))
    alone = hydra.compose("sweep", [f"{group}={name}" for group, name in options])
    assert contents(below.tuning.automl) == contents(alone)
    assert set(below) == {"tuning", "epochs", "folder", "data"}, "and nothing stands elsewhere"
    assert below.data == {"rows": 7}


@pytest.mark.parametrize("file", [*FILES, Path("sweep.yaml")], ids=str)
def test_no_file_names_a_place_from_the_root(file: Path) -> None:
    text = (conf_dir() / file).read_text("utf-8")
    assert "@package" not in text
    assert "${" not in text
    read = yaml.safe_load(text) or {}
    for entry in read.get("defaults", []):
        assert not str(next(iter(entry)) if isinstance(entry, dict) else entry).startswith(
            ("/", "override /")
        )


def test_the_default_space_is_the_one_of_the_table_of_contents() -> None:
    entries = yaml.safe_load((conf_dir() / "sweep.yaml").read_text("utf-8"))["defaults"]
    assert {"space": DEFAULT_SPACE} in entries


@pytest.mark.parametrize(
    ("options", "space"),
    [
        (("data/csv", "execution/inline", "objective/command"), "space=empty"),
        (("model/python", "pruner/median", "sampler/random"), "space=mlp_full"),
        (("objective/optuna",), "~space"),
    ],
)
def test_what_was_composed_below_a_package_is_what_the_command_line_makes(
    application: Application, options: Sequence[str], space: str
) -> None:
    pairs = [option.split("/") for option in options]
    settings = [setting for option in options for setting in NEEDED.get(option, [])]
    below = application(
        *(f"{group}@tuning.automl.{group}={name}" for group, name in pairs),
        f"space@tuning.automl.space={'empty' if space == '~space' else space.split('=')[1]}",
        *(f"tuning.automl.{setting}" for setting in settings),
    )
    made = given(below.tuning.automl)
    chosen = [f"{group}={name}" for group, name in pairs]
    alone = compose_command(parse_command_line([*chosen, *settings, space]))
    assert made.config == alone.config
    assert made.stored_config == alone.stored_config


def test_overrides_win_over_what_was_composed(application: Application) -> None:
    config = application("tuning.automl.study.n_trials=3", "+tuning.automl.space.momentum=0.5")
    made = given(config.tuning.automl, "study.n_trials=5", "space.lr=0.1", "pruner=median").config
    assert (made.study.n_trials, made.space["lr"], made.space["momentum"]) == (5, 0.1, 0.5)
    assert type(made.pruner).__name__ == "MedianPruner"
    with pytest.raises(ConfigError, match=r"study\.n_trials=0: must be at least 1"):
        given(config.tuning.automl, "study.n_trials=0")


def test_the_applications_own_keys_are_taken_by_value(application: Application) -> None:
    config = application(
        "+tuning.automl.space.epochs=${epochs}",
        "+tuning.automl.space.folder=${folder.data}/a",
        "+tuning.automl.space.lists=[1,${epochs}]",
        "tuning.automl.devices.only=cpu",
    )
    made = given(config.tuning.automl)
    assert made.config.space["epochs"] == 3
    assert made.config.space["folder"] == "here/a"
    assert made.config.space["lists"] == {"choices": [1, 3]}
    assert "${" not in made.stored_config


def test_a_whole_section_may_be_the_applications(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", "there")
    config = application()
    config.tuning.automl.space = "${folder}"
    made = given(config.tuning.automl)
    assert made.config.space == {"data": "here", "store": "there"}
    assert "store: ${oc.env:STORE}\n" in made.stored_config


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("${oc.env:STORE}", "${oc.env:STORE}"),
        ("${folder.store}", "${oc.env:STORE}"),
        ("sqlite:///${folder.store}/${oc.env:STORE}", "sqlite:///${oc.env:STORE}/${oc.env:STORE}"),
        ("sqlite:///${folder.data}/${folder.store}", "sqlite:///here/${oc.env:STORE}"),
        ("${oc.decode:here}/${folder.store}", "here/${oc.env:STORE}"),
    ],
)
def test_what_leads_to_the_environment_is_stored_as_a_reference(
    application: Application, monkeypatch: pytest.MonkeyPatch, written: str, stored: str
) -> None:
    monkeypatch.setenv("STORE", "a-word-of-the-environment")
    config = application()
    config.tuning.automl.tracking.uri = written
    made = given(config.tuning.automl)
    resolved = stored.replace("${oc.env:STORE}", "a-word-of-the-environment")
    assert made.config.tracking.uri == resolved
    assert f"uri: {stored}\n" in made.stored_config
    assert "a-word-of-the-environment" not in made.stored_config


def test_a_reference_that_leads_nowhere_is_named(application: Application) -> None:
    config = application()
    config.tuning.automl.tracking.uri = "${not.there}"
    with pytest.raises(ConfigError, match=r"not\.there"):
        given(config.tuning.automl)


def test_a_reference_that_leads_to_itself_ends(application: Application) -> None:
    config = application()
    config.tuning.automl.tracking.uri = "${tuning.automl.tracking.uri}"
    with pytest.raises(ConfigError):
        given(config.tuning.automl)


def test_an_applications_hydra_is_its_own_again(application: Application) -> None:
    before = GlobalHydra.instance().hydra
    version = VersionBase.instance().getbase()
    given(application().tuning.automl)
    with pytest.raises(ConfigError):
        given(application().tuning.automl, "study.n_trials=0")
    assert GlobalHydra.instance().hydra is before
    assert VersionBase.instance().getbase() is version
    assert application("epochs=4").epochs == 4


def test_what_was_not_composed_from_ours_is_refused_with_the_remedy(
    application: Application,
) -> None:
    begin = r"automl\.register_configs\(\) before @hydra\.main.*`defaults: \[/sweep@automl, _self_"
    with pytest.raises(ConfigError, match=rf"this DictConfig was not .*{begin}"):
        application_base_config(OmegaConf.create({"study": {"name": "a"}}))
    with pytest.raises(ConfigError, match=f"this dict was not composed from ours.*{begin}"):
        application_base_config({})
    with pytest.raises(ConfigError, match=r"give that, automl\.sweep\(config\.automl\)"):
        application_base_config(application().tuning)


def test_the_built_in_networks_space_is_refused_for_an_objective_that_asks(
    application: Application,
) -> None:
    asks = ("objective@tuning.automl.objective=optuna", "tuning.automl.objective.target=a:b")
    with pytest.raises(ConfigError, match=r"put `override /space@automl\.space: empty`"):
        given(application(*asks).tuning.automl)
    chosen = application(*asks, "space@tuning.automl.space=empty", "+tuning.automl.space.lr=0.1")
    assert given(chosen.tuning.automl).config.space == {"lr": 0.1}


def test_a_file_of_the_applications_before_one_of_ours_is_named(
    application: Application, folder: Path
) -> None:
    (folder / "conf" / "model").mkdir()
    mlp = "model@tuning.automl.model=mlp"
    (folder / "conf" / "model" / "mlp.yaml").write_text("layers: 3\n")
    with pytest.raises(ConfigCompositionException, match=r"In 'model/mlp'[^§]*Key 'layers' not in"):
        application(mlp)
    (folder / "conf" / "model" / "mlp.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"model: the chosen option names no schema"):
        given(application(mlp).tuning.automl)


TABLE = ("data@tuning.automl.data=csv", "tuning.automl.data.path=a", "tuning.automl.data.target=b")


@pytest.mark.slow
def test_a_table_gets_any_family_where_the_application_chose_no_model(
    application: Application,
) -> None:
    made = given(application(*TABLE, "+tuning.automl.space.mlp_beta=0.5").tuning.automl).config
    alone = compose_command(
        parse_command_line(
            [
                *(
                    w.replace("@tuning.automl.data", "").removeprefix("tuning.automl.")
                    for w in TABLE
                ),
                "space.mlp_beta=0.5",
            ]
        )
    ).config
    assert made == alone
    assert made.model.choice == "family"
    own = application(*TABLE, "model@tuning.automl.model=mlp").tuning.automl
    assert (given(own).config.model, given(own).config.data.folds) == (MLPFamily(), 1)
    changed = application(*TABLE, "tuning.automl.model.growth=doubling").tuning.automl
    assert given(changed).config.model == MLPFamily(growth=Growth.doubling)
    again = given(application().tuning.automl, "data=csv", "data.path=a", "data.target=b").config
    assert again.model.choice == "family"
    assert set(again.space) == set(alone.space) - {"mlp_beta"}
    assert again.training.epochs is None, "each family's own length"
    longer = application(*TABLE, "tuning.automl.training.epochs=50").tuning.automl
    assert given(longer).config.training.epochs == 50
    open_length = application(*TABLE).tuning.automl
    assert given(open_length, "training.epochs=7").config.training.epochs == 7


def test_a_model_that_the_application_chose_brings_its_space_and_its_length(
    application: Application,
) -> None:
    chosen = application(*TABLE, "model@tuning.automl.model=auto").tuning.automl
    assert chosen.training.epochs is None, "as the application itself reads it"
    assert application().tuning.automl.training.epochs == 20
    made = given(chosen).config
    assert made == given(application(*TABLE).tuning.automl).config
    assert (made.training.epochs, "mlp_lr" in made.space, "lr" in made.space) == (None, True, False)
    said = application(
        *TABLE, "model@tuning.automl.model=auto", "tuning.automl.training.epochs=20"
    ).tuning.automl
    assert given(said).config.training.epochs == 20
    trees = given(application("model@tuning.automl.model=trees").tuning.automl).config
    assert (trees.training.epochs, "max_features" in trees.space) == (20, True)
    replaced = given(application().tuning.automl, "model=tabm").config
    assert replaced.training.epochs is None, "that of the model which is taken"


def test_jobs_of_a_multirun_share_no_study(application: Application) -> None:
    config = application("tuning.automl.study.name=shared")
    named = application("tuning.automl.study.name=by-${epochs}")
    assert application_study_name(config.tuning.automl) == "shared", "no program of Hydra's runs"
    loader = GlobalHydra.instance().config_loader()
    for mode, word in (("MULTIRUN", "x"), ("RUN", "x"), ("MULTIRUN", "tuning.automl.study.name=b")):
        hydras = loader.load_configuration("own", [f"hydra.mode={mode}"], RunMode.RUN)
        with open_dict(hydras):
            hydras.hydra.overrides.task = [word]
        HydraConfig.instance().set_config(hydras)
        try:
            if (mode, word) == ("MULTIRUN", "x"):
                with pytest.raises(ConfigError, match=r"study\.name: shared-\$\{hydra:job\.num\}"):
                    application_study_name(config.tuning.automl)
            else:
                assert application_study_name(config.tuning.automl) == "shared"
            assert application_study_name(named.tuning.automl) == "by-3"
            assert application_study_name(application().tuning.automl) is None
        finally:
            HydraConfig.instance().cfg = None
