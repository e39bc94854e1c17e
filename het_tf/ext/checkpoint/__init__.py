"""checkpoint: see README.md."""
