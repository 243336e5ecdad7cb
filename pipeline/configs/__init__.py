"""Configs, one short file per competition, with expected results and changes to the defaults."""
