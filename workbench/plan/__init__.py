"""Estimate a training run's memory, time and cost from its config, without any accelerators."""
