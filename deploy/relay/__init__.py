"""The chain of steps, from training to a score, each safe to run again.

Comes in: a project and its journal. Goes out: runs, datasets and submissions. Never imported here:
`deploy.trace` and `deploy.setup`.
"""
