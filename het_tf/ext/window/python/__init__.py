"""Planned lookups, and streams whose steps are announced."""
