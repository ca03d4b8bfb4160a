"""The API of Python: `automl.fit`, `automl.sweep` and the handle of a study. The file is empty but
for this sentence: importing the package loads nothing."""
