"""A competition folder that no config describes becomes findings, and a config that runs.

Comes in: a folder. Goes out: findings, a config, a page. Never imported here: inference or report.
"""
