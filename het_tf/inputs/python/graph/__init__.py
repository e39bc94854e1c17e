"""Graphs in files, and draws of neighbours from them."""
