"""The Python side of het_tf. Only names of `het_tf` itself are public."""
