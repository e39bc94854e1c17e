"""The Python of window."""
