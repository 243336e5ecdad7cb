"""Scale: a learning rate that is scaled for a larger batch, and more than one process."""
