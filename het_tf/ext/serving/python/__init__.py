"""Exports, versions at the server, and followers."""
