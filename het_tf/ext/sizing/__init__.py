"""Forecasts of a job: README.md beside this file says more."""
