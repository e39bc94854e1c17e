"""The Python side of the readers."""
