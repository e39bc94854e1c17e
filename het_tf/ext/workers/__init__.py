"""workers: see README.md."""
