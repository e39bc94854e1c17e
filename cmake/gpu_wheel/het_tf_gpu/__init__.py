"""Native libraries of het_tf for GPUs; het_tf loads them from here."""
