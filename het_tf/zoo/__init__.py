"""Models, data sets and ranking metrics, made from public names of het_tf only."""
