"""`het ps exporter`: the figures of a job for Prometheus, and as a page."""
