"""Versions of a model at the parameter server: its dense weights, and the rows that belong to them."""
