"""Config files, one per competition, with their expected results and changes to the defaults."""
