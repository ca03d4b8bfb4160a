"""Trials that train several models, each on other rows, and are judged by the rows left out.

| file | content |
|------|---------|
| `fold_course.py` | the progress of a trial with folds: reports and lengths of folds; pure |
| `fold_pack.py` | folds as lanes of a pack, which still sees one trial |
| `fold_estimator.py` | the choice of the way, and one call of any family's estimator per fold |

A trial's value is reported at its end (`goal.py`): the loss of the rows left out, with each fold as
it was after the epoch that was best for the *other* folds of its division. A fold that is stopped
by the rows that judge it looks too good.
"""
