"""Which worker takes a sample: rules, splits of files, and het-data."""
