"""Conversion of models: README.md beside this file says more."""
