"""One folder for each question: run.py and result.json. report.py writes the tables of docs/benchmarks.md."""

import sys
from pathlib import Path

# Models and data sets are those of the examples.
sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))
