"""Metrics of ranking and click prediction."""
