"""Other data needs only another config, is read fast, and ends in a valid submission."""
