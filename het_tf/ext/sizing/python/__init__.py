"""Forecasts the cost of a job before it runs (public as `het_tf.planner`; the command is het plan)."""
