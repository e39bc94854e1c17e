"""Rows in files of others, and how they come into tables."""
