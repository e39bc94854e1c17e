"""Figures of a running job: README.md beside this file says more."""
