"""One run of one notebook on Kaggle: pushed, watched, pulled.

Comes in: a bundle. Goes out: its status, its log and its verified output. Never imported here:
`deploy.relay`, which chains runs.
"""
