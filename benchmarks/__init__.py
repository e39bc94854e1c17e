"""One folder for each question: run.py, README.md and result.json. report.py writes the tables."""
