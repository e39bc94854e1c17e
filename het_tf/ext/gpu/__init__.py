"""Caches on a GPU: README.md beside this file says more."""
