"""What a newcomer meets with a competition of their own, from the first command to a score."""
