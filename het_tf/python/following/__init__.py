"""Follows a parameter server with the live files of an exported model: the command `het-serve`.

    cli.py       the command line
    target.py    what an export says about itself: assets/follow.json
    follow.py    the process: rows in C++ (native.py), versions here
    dense.py     the dense weights of published versions, as files of the live directory
    control.py   the live directory as readers find it, for `het-serve status`

Nothing here imports TensorFlow: a follower runs for as long as the model is served.
"""
