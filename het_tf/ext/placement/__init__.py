"""placement: see README.md."""
