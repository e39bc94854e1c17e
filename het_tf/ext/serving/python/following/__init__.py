"""Follows a parameter server with the live files of an exported model: the command `het serve`.

    cli.py       the command line
    target.py    what an export says about itself: assets/follow.json
    follow.py    the process: rows in C++ (native.py), versions here
    dense.py     the dense weights of published versions, as files of the live directory
    live.py      the live files as readers find them

Nothing here imports TensorFlow: a follower runs for as long as the model is served.
"""
