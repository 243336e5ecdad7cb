"""Files that both sides read and write, by the standard library and numpy alone.

Comes in: bytes, arrays and paths. Goes out: files that are complete or as they were before, and
verified content.
"""
