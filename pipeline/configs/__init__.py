"""One config file per competition, with its expected results and changes to the defaults."""
