"""ps: see README.md."""
