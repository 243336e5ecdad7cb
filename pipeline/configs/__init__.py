"""One config file per competition, with its expected score."""
