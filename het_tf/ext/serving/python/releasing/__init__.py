"""Which published version followers serve: tests before a release, the way back; `het publish`.

cli.py        the command line
guard.py      the process that tests candidates
condition.py  "auc < 0.79", and the metrics
sample.py     the labelled sample, and a model's predictions for it
"""
