"""Placed streams: README.md beside this file says more."""
