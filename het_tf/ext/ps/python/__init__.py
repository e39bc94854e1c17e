"""Valkey and Redis servers with the module het: started, watched and stopped. Nothing here needs TensorFlow.

`redis_server.LocalServer` is the private server of one job; the command `het ps` (cli.py) is for servers that
outlive jobs.
"""
