"""A competition's folder that no config describes yet becomes a list of findings and a config that
runs.

Comes in: a folder. Goes out: findings, a config, a page. Never imported here: inference or report.
"""
