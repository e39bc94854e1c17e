"""Several workers: README.md beside this file says more."""
