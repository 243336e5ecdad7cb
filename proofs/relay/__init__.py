"""The chain runs end to end."""
