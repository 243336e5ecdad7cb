"""Other data needs another config and nothing else, is read fast, and ends in a valid submission."""
