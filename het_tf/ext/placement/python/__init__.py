"""Places samples on workers: rules, splits of files, and het data."""
