"""Parameter servers: README.md beside this file says more."""
