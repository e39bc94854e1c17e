"""One folder for each question: run.py and result.json. report.py writes the tables of docs/benchmarks.md."""
