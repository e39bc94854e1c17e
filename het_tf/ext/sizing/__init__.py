"""sizing: see README.md."""
