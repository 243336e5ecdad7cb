"""One notebook with the package inside it, checked before it may leave this machine.

Comes in: a kernel's folder, `pipeline/` and a config. Goes out: the notebook and its metadata.
Never imported here: what pushes it.
"""
