"""The commands, one file for each; `automl/cli/command_registry.py` lists them.

Importing the package loads nothing.
"""
