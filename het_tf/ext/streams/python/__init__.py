"""Streams of samples over ranks, and planned lookups."""
