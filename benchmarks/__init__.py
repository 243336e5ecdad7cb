"""Benchmarks that compare this template with common alternatives, with one script per subject."""
