"""The Python of gpu."""
