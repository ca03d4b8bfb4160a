"""Faults tried one after another at every place where they may strike."""
