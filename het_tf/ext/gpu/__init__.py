"""gpu: see README.md."""
