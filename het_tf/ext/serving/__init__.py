"""Exports, followers, publishing: README.md beside this file says more."""
