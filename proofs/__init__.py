"""What the project claims, measured again by `invoke prove`: one module a subject, one row a claim."""
