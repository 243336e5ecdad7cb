"""The proof of the plan: what it says of runs that others have measured, and of our own."""
