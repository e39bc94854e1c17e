"""Loads rows from files of other programs into tables."""
