"""One tool on one table: learns from `train.csv` in a folder until a moment, and writes what it
says of the rows of `test.csv`.

Runs in the environment of the tool, so it imports no more than that has: see peers.py, which calls
it. Dates become numbers and texts categories for tools that leave that to their users.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

TARGET = "target"
SEED = 0
N_FOLDS = 5
MANY_ROWS = 20_000
"""Above it LightGBM is tuned by a fifth of the rows, as ours is judged."""
SOONER = 0.97
"""The share of its time after which a tool that can be told so begins nothing new."""

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Said: TypeAlias = tuple[Floats, Sequence[str]]
"""(N, C) probabilities and the classes they are of; or (N,) values and none."""


@dataclass(frozen=True, eq=False)
class Work:
    """What a tool is given."""

    folder: Path
    train: pd.DataFrame
    test: pd.DataFrame
    """Without the target."""
    of_classes: bool
    until: float
    """Unix time."""
    settings: tuple[str, ...]
    group: str | None = None
    """The column of rows that belong together, where a tool is told of it."""
    time: str | None = None

    @property
    def n_threads(self) -> int:
        return len(os.sched_getaffinity(0))

    @property
    def seconds(self) -> float:
        return max(1.0, self.until - time.time())

    @property
    def x(self) -> pd.DataFrame:
        return self.train.drop(columns=TARGET)

    @property
    def y(self) -> pd.Series[Any]:
        return self.train[TARGET]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--until", type=float, required=True, help="Unix time")
    parser.add_argument("--classes", action="store_true", help="the target is a class")
    parser.add_argument("--group", help="the column of rows that belong together")
    parser.add_argument("--time", help="the column by which rows come one after another")
    parser.add_argument("settings", nargs="*", help="overrides of ours")
    asked = parser.parse_intermixed_args()
    kinds = {TARGET: str} if asked.classes else None
    train = pd.read_csv(asked.folder / "train.csv", dtype=kinds)
    test = pd.read_csv(asked.folder / "test.csv")
    work = Work(
        *(asked.folder, train, test, asked.classes, asked.until), settings=tuple(asked.settings),
        group=asked.group, time=asked.time,
    )  # fmt: skip
    said, classes = TOOLS[asked.tool](work)
    np.save(asked.folder / "said.npy", np.asarray(said, dtype=np.float64))
    (asked.folder / "classes.json").write_text(json.dumps([str(name) for name in classes]))


def ours(work: Work) -> Said:
    import automl

    told = [f"data.{key}={name}" for key, name in _structure(work).items()]
    study = automl.fit(
        work.folder / "train.csv",
        TARGET,
        timeout_seconds=work.seconds * SOONER,
        overrides=[f"data.task={_task(work)}", *work.settings, *told],
    )
    labels = study.predict(work.test)
    if not work.of_classes:
        return np.asarray(labels), ()
    (work.folder / "labels.json").write_text(json.dumps([str(label) for label in labels]))
    return np.asarray(study.predict_probabilities(work.test)), [
        str(name) for name in study.model.classes
    ]


def autogluon(preset: str) -> Callable[[Work], Said]:
    def tool(work: Work) -> Said:
        from autogluon.tabular import TabularPredictor

        n_classes = work.y.nunique()
        problem = "regression" if not work.of_classes else "binary"
        predictor = TabularPredictor(
            label=TARGET,
            problem_type="multiclass" if work.of_classes and n_classes > 2 else problem,
            eval_metric="log_loss" if work.of_classes else "root_mean_squared_error",
            path=str(work.folder / "autogluon"),
            verbosity=1,
        ).fit(
            work.train,
            presets=preset,
            time_limit=work.seconds * SOONER,
            num_cpus=work.n_threads,
            num_gpus=0,
            validation_structure={f"{key}_on": name for key, name in _structure(work).items()}
            or None,
        )
        if not work.of_classes:
            return np.asarray(predictor.predict(work.test)), ()
        return np.asarray(predictor.predict_proba(work.test)), list(predictor.class_labels)

    return tool


def flaml(work: Work) -> Said:
    """Its own choice of models and params; the best is trained again on all rows, in its time."""
    from flaml import AutoML

    x, x_test = _columns(work)
    tool = AutoML()
    tool.fit(
        X_train=x,
        y_train=work.y,
        task="classification" if work.of_classes else "regression",
        metric="log_loss" if work.of_classes else "rmse",
        time_budget=work.seconds * SOONER,
        n_jobs=work.n_threads,
        seed=SEED,
        retrain_full="budget",
        log_file_name="",
        verbose=0,
    )
    return _told(tool, x_test, work)


def tuned(booster: Callable[[Work], _Booster]) -> Callable[[Work], Said]:
    """TPE over the params of a booster, judged by five folds (one hold-out of many rows); predicts
    the mean of the models that judged the best params."""

    def tool(work: Work) -> Said:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        tuning = _Tuning(work, booster(work))
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=SEED))
        study.enqueue_trial(tuning.booster.first)
        study.optimize(tuning, timeout=work.seconds * SOONER)
        said = np.mean([tuning.booster.predict(model) for model in tuning.best], axis=0)
        return said, tuning.classes

    return tool


class _Tuning:
    """The objective that Optuna calls; keeps the models of the best params."""

    def __init__(self, work: Work, booster: _Booster) -> None:
        from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

        self.work, self.booster, self.value = work, booster, float("inf")
        self.best: list[Any] = []
        self.classes = booster.classes
        rows, y = np.arange(len(work.train)), booster.y
        stratify = y if work.of_classes else None
        if len(rows) > MANY_ROWS:
            one = train_test_split(rows, test_size=0.2, random_state=SEED, stratify=stratify)
            self.folds = [tuple(one)]
        else:
            kind = StratifiedKFold if work.of_classes else KFold
            self.folds = list(kind(N_FOLDS, shuffle=True, random_state=SEED).split(rows, y))

    def __call__(self, trial: Any) -> float:
        import optuna

        params, scored = self.booster.suggest(trial), list[tuple[Any, float]]()
        with suppress(_Over):
            for train, judge in self.folds:
                scored.append(self.booster.fit(params, train, judge, self._is_over))
        whole = len(scored) == len(self.folds)
        if not scored or (self.best and not whole):
            raise optuna.TrialPruned  # no time is left
        value = float(np.mean([value for _, value in scored]))
        if value < self.value:
            self.best, self.value = [model for model, _ in scored], value
        return value

    def _is_over(self) -> bool:
        return bool(self.best) and time.time() > self.work.until


class _Booster:
    """A library of boosted trees, as `_Tuning` uses it."""

    first: ClassVar[dict[str, Any]]
    """The params that are tried first: those of the library."""

    def __init__(self, work: Work) -> None:
        self.x, self.x_test = _columns(work)
        self.n_threads, self.folder = work.n_threads, work.folder
        self.classes: list[str] = sorted(work.y.unique()) if work.of_classes else []
        codes = {name: code for code, name in enumerate(self.classes)}
        self.y = (work.y.map(codes) if work.of_classes else work.y).to_numpy()

    def suggest(self, trial: Any) -> dict[str, Any]:
        raise NotImplementedError

    def fit(
        self, params: dict[str, Any], train: Any, judge: Any, is_over: Callable[[], bool]
    ) -> tuple[Any, float]:
        """Return a model of the rows `train`, and its loss on the rows `judge`. Raises _Over where
        `is_over`, which is asked after each tree."""
        raise NotImplementedError

    def predict(self, model: Any) -> Floats:
        raise NotImplementedError


class _LightGBM(_Booster):
    first: ClassVar[dict[str, Any]] = {
        "num_leaves": 31,
        "learning_rate": 0.1,
        "min_child_samples": 20,
    }

    def suggest(self, trial: Any) -> dict[str, Any]:
        return {
            "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 4, 256, log=True),
            "min_child_samples": trial.suggest_int("min_child_samples", 2, 100, log=True),
            "feature_fraction": trial.suggest_float("feature_fraction", 0.3, 1.0),
            "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
            "lambda_l1": trial.suggest_float("lambda_l1", 1e-8, 10, log=True),
            "lambda_l2": trial.suggest_float("lambda_l2", 1e-8, 10, log=True),
        }

    def fit(
        self, params: dict[str, Any], train: Any, judge: Any, is_over: Callable[[], bool]
    ) -> tuple[Any, float]:
        import lightgbm

        def check_time(_: object) -> None:
            if is_over():
                raise _Over

        n = len(self.classes)
        goal = {"objective": "multiclass", "num_class": n} if n > 2 else {"objective": "binary"}
        fixed = {"verbosity": -1, "num_threads": self.n_threads, "seed": SEED, "bagging_freq": 1}
        data = lightgbm.Dataset(self.x.iloc[train], self.y[train])
        model = lightgbm.train(
            {**params, **fixed, **(goal if n else {"objective": "regression", "metric": "rmse"})},
            data,
            num_boost_round=3000,
            valid_sets=[lightgbm.Dataset(self.x.iloc[judge], self.y[judge], reference=data)],
            callbacks=[lightgbm.early_stopping(50, verbose=False), check_time],
        )
        return model, next(iter(model.best_score["valid_0"].values()))

    def predict(self, model: Any) -> Floats:
        said = model.predict(self.x_test)
        return np.column_stack([1 - said, said]) if len(self.classes) == 2 else np.asarray(said)


class _CatBoost(_Booster):
    first: ClassVar[dict[str, Any]] = {"learning_rate": 0.05, "depth": 6, "l2_leaf_reg": 3.0}

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.texts, self.x, self.x_test = _with_texts(self.x, self.x_test)

    def suggest(self, trial: Any) -> dict[str, Any]:
        return {
            "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
            "depth": trial.suggest_int("depth", 3, 9),
            "l2_leaf_reg": trial.suggest_float("l2_leaf_reg", 0.5, 30, log=True),
            "random_strength": trial.suggest_float("random_strength", 0.1, 10, log=True),
            "bagging_temperature": trial.suggest_float("bagging_temperature", 0, 2),
            "one_hot_max_size": trial.suggest_categorical("one_hot_max_size", [2, 10, 50]),
        }

    def fit(
        self, params: dict[str, Any], train: Any, judge: Any, is_over: Callable[[], bool]
    ) -> tuple[Any, float]:
        from catboost import CatBoost, Pool

        class Clock:
            def after_iteration(self, _: object) -> bool:
                return not is_over()

        n = len(self.classes)
        loss = "RMSE" if n == 0 else "MultiClass" if n > 2 else "Logloss"
        pools = [
            Pool(self.x.iloc[rows], self.y[rows], cat_features=self.texts)
            for rows in (train, judge)
        ]
        fixed = {
            "iterations": 3000, "thread_count": self.n_threads, "random_seed": SEED,
            "loss_function": loss, "allow_writing_files": False, "verbose": False,
        }  # fmt: skip
        model = CatBoost({**params, **fixed}).fit(
            pools[0], eval_set=pools[1], early_stopping_rounds=50, callbacks=[Clock()]
        )
        if is_over():
            raise _Over
        return model, float(model.get_best_score()["validation"][loss])

    def predict(self, model: Any) -> Floats:
        kind = "Probability" if self.classes else "RawFormulaVal"
        return np.asarray(model.predict(self.x_test, prediction_type=kind))


class _Over(Exception):
    """Raised to end a training whose time is over."""


def catboost_default(work: Work) -> Said:
    from catboost import CatBoostClassifier, CatBoostRegressor

    texts, x, x_test = _with_texts(*_columns(work))
    kind = CatBoostClassifier if work.of_classes else CatBoostRegressor
    model = kind(
        *(), cat_features=texts, thread_count=work.n_threads, random_seed=SEED, verbose=False,
        train_dir=str(work.folder / "catboost"),
    )  # fmt: skip
    return _told(model.fit(x, work.y), x_test, work)


def _with_texts(
    x: pd.DataFrame, x_test: pd.DataFrame
) -> tuple[list[str], pd.DataFrame, pd.DataFrame]:
    """Return the names of the categories, and the columns with these as texts, as CatBoost reads
    them."""
    texts = list(x.columns[x.dtypes == "category"])
    told = [part[texts].astype(object).fillna("missing") for part in (x, x_test)]
    x, x_test = (part.assign(**of) for part, of in zip((x, x_test), told, strict=True))
    return texts, x, x_test


def sklearn_default(classifier: str, regressor: str, **params: Any) -> Callable[[Work], Said]:
    """A model of scikit-learn, `module:class`; a column for each kind, and scaled numbers."""

    def tool(work: Work) -> Said:
        from sklearn.compose import make_column_selector, make_column_transformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        x, x_test = _columns(work)
        module, name = (classifier if work.of_classes else regressor).split(":")
        kind = getattr(import_module(f"sklearn.{module}"), name)
        one_hot = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=100, sparse_output=False
        )
        columns = make_column_transformer(
            (one_hot, make_column_selector(dtype_include="category")),
            remainder=make_pipeline(SimpleImputer(), StandardScaler()),
        )
        known = kind().get_params()
        fixed = {"n_jobs": work.n_threads, "random_state": SEED, **params}
        model = kind(**{key: value for key, value in fixed.items() if key in known})
        return _told(make_pipeline(columns, model).fit(x, work.y), x_test, work)

    return tool


def hist_gradient_boosting(work: Work) -> Said:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    x, x_test = _columns(work, n_levels=255)
    kind = HistGradientBoostingClassifier if work.of_classes else HistGradientBoostingRegressor
    model = kind(random_state=SEED, categorical_features="from_dtype")
    return _told(model.fit(x, work.y), x_test, work)


def lightgbm_default(work: Work) -> Said:
    from lightgbm import LGBMClassifier, LGBMRegressor

    x, x_test = _columns(work)
    kind = LGBMClassifier if work.of_classes else LGBMRegressor
    model = kind(n_jobs=work.n_threads, random_state=SEED, verbosity=-1)
    return _told(model.fit(x, work.y), x_test, work)


def realmlp(work: Work) -> Said:
    """As its authors advise where probabilities count: no label smoothing, stopped by log-loss."""
    from pytabkit import RealMLP_TD_Classifier, RealMLP_TD_Regressor

    x, x_test = _columns(work)
    # One thread: on networks as small as this two wait for each other.
    common: dict[str, Any] = {"device": "cpu", "n_threads": 1, "random_state": SEED}
    if work.of_classes:
        common |= {"use_ls": False, "val_metric_name": "cross_entropy"}
    model = (RealMLP_TD_Classifier if work.of_classes else RealMLP_TD_Regressor)(**common)
    texts = list(x.columns[x.dtypes == "category"])
    return _told(model.fit(x, work.y, cat_col_names=texts), x_test, work)


def _told(model: Any, x: pd.DataFrame, work: Work) -> Said:
    if work.of_classes:
        return np.asarray(model.predict_proba(x)), list(model.classes_)
    return np.asarray(model.predict(x)), ()


def _columns(work: Work, n_levels: int | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Dates as numbers; texts as categories that the training rows have, the rarest of more than
    `n_levels` as missing; missing numbers as they are, of which some become the median."""
    x, x_test = work.x, work.test.copy()
    for name in [n for n in x.columns if not pd.api.types.is_numeric_dtype(x[n])]:
        if _is_date(x[name]):
            x, x_test = (_with_date(part, name) for part in (x, x_test))
        else:
            levels = x[name].value_counts().index[:n_levels]
            kind = pd.CategoricalDtype(levels.sort_values())
            x, x_test = (part.assign(**{name: part[name].astype(kind)}) for part in (x, x_test))
    return x, x_test


def _is_date(column: pd.Series[Any]) -> bool:
    when = pd.to_datetime(column, errors="coerce", format="%Y-%m-%d %H:%M")
    return bool(when.notna().all())


def _with_date(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    when = pd.to_datetime(frame[name]).dt
    parts = {f"{name} {part}": getattr(when, part) for part in ("month", "dayofweek", "hour")}
    return frame.drop(columns=name).assign(**parts, **{f"{name} day": when.dayofyear})


def _structure(work: Work) -> dict[str, str]:
    """Return the column of groups or of time, by `group` or `time`; empty: nothing was told."""
    named = {"group": work.group, "time": work.time}
    return {key: name for key, name in named.items() if name is not None}


def _task(work: Work) -> str:
    return "classification" if work.of_classes else "regression"


_EXTRA_TREES = partial(
    sklearn_default, "ensemble:ExtraTreesClassifier", "ensemble:ExtraTreesRegressor"
)
TOOLS: dict[str, Callable[[Work], Said]] = {
    "automl": ours,
    "autogluon-medium": autogluon("medium_quality"),
    "autogluon-best": autogluon("best_quality_v150"),
    "flaml": flaml,
    "lightgbm-optuna": tuned(_LightGBM),
    "catboost-optuna": tuned(_CatBoost),
    "lightgbm": lightgbm_default,
    "catboost": catboost_default,
    "hist-boosting": hist_gradient_boosting,
    "gradient-boosting": sklearn_default(
        "ensemble:GradientBoostingClassifier", "ensemble:GradientBoostingRegressor"
    ),
    "extra-trees": _EXTRA_TREES(),
    "extra-trees-all": _EXTRA_TREES(max_features=None),
    "random-forest": sklearn_default(
        "ensemble:RandomForestClassifier", "ensemble:RandomForestRegressor"
    ),
    "linear": sklearn_default("linear_model:LogisticRegression", "linear_model:Ridge"),
    "neighbours": sklearn_default(
        "neighbors:KNeighborsClassifier", "neighbors:KNeighborsRegressor"
    ),
    "mlp": sklearn_default("neural_network:MLPClassifier", "neural_network:MLPRegressor"),
    "realmlp": realmlp,
}


if __name__ == "__main__":
    main()
