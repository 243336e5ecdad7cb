"""Bench: the benchmark of 2018 retold by the report's code, and trainings here beside it."""
