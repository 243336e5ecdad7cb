"""What the project claims, measured again by `invoke prove`: one package a subject, one row a
claim.
"""
