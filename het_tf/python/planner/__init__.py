"""Forecasts of what a job will cost, and plans of where its rows lie; no TensorFlow."""
