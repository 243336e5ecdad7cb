"""Whatever the site answers, nothing is made twice, nothing is lost, and no success is claimed that
is none.
"""
