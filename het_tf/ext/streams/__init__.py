"""Streams: README.md beside this file says more."""
