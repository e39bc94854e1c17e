"""convert: see README.md."""
