"""serving: see README.md."""
