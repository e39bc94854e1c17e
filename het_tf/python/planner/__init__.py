"""What a job will cost, before it runs (public as `het_tf.planner`; the command is het-plan)."""
