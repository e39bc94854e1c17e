"""Planned lookups: README.md beside this file says more."""
