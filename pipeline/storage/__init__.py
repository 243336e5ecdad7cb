"""Files that are never half written, and checksums of them.

Comes in: bytes, texts and paths. Goes out: whole files, or files as they were before. Never
imported here: anything but `pipeline.errors`.
"""
