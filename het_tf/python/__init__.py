"""The Python side of het_tf. Its public names are those of `het_tf` itself."""
