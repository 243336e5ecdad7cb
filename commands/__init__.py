"""The commands behind `tasks.py`: they parse, call and print.

Comes in: options. Goes out: lines, JSON and exit codes. The work belongs to `deploy/` or
`pipeline/`.
"""
