"""window: see README.md."""
