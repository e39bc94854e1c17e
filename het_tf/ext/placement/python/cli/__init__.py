"""The command `het data`: compares fields for placing samples, and writes placed files."""
