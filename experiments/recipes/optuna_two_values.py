"""An objective for Optuna that returns two values, swept as it is: no line is changed.

The values are the metrics of `metric=`, in their order, with the directions that Optuna's study
has. Its user attribute is limited, which Optuna's samplers do by a `constraints_func`.
`python optuna_two_values.py` still runs it by Optuna alone.

$ python -m automl train=optuna_two_values.py:objective name=two 'metric=[error,speed]' \
    'study.direction=[minimize,maximize]' 'study.constraints={megabytes: 2}' n_trials=12
"""

import optuna


def objective(trial):
    depth = trial.suggest_int("depth", 1, 8)
    width = trial.suggest_int("width", 8, 256, log=True)
    n_weights = depth * width**2
    trial.set_user_attr("megabytes", 4 * n_weights / 1e6)
    error = 1 / (depth * width) ** 0.5
    return error, 1e6 / n_weights


if __name__ == "__main__":
    study = optuna.create_study(directions=["minimize", "maximize"])
    study.optimize(objective, n_trials=12)
    print([trial.params for trial in study.best_trials])
