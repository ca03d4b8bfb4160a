"""Trials that train several models, each on other rows, and are judged by the rows left out.

| file | is |
|------|----|
| `fold_course.py` | how such a trial stands: its reports, and at which length each fold is taken;
pure |
| `pack.py` | folds as lanes of a pack: to a pack still one trial |
| `calls.py` | folds of any family's estimator, one call for each, in turn from report to report |
| `fold_estimator.py` | which of the two a trial is trained by |
| `judged.py` | what a trained model says of the rows by which it was judged |

A trial's value is told at its end (`goal.py`): the loss of the rows left out, with each fold as it
was after the epoch that was best for the *others* of its division. A fold that is stopped by the
rows that judge it looks too good.
"""
