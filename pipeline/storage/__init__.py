"""Complete files, and their checksums.

Comes in: bytes, arrays, texts and paths. Goes out: files that are complete or as they were before,
and verified content. Never imported here: anything but `pipeline.errors`.
"""
