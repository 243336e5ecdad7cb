"""What the project claims, measured again by `invoke prove`: one package a subject, one row a
claim.

The `rows` of each subject's `claims` take the root of the repository, whether a `short` sample is
enough, `show` for lines of progress, and a folder for `pictures`, or None. A part of a subject gets
an empty `folder`. Each row is yielded as soon as it is measured.
"""
