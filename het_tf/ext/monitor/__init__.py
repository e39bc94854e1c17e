"""monitor: see README.md."""
