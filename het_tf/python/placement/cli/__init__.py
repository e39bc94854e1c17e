"""The command `het-data`: which field places samples, and files that are placed."""
