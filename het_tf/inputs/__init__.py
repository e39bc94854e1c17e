"""Readers of input files: Criteo text and graphs, with ops of a library of their own."""
