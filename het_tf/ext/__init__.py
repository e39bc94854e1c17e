"""Capabilities around the core, one folder each: README.md there says what it is for."""
