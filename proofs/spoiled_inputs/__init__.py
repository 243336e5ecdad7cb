"""Hundreds of spoiled inputs end in a valid submission or in a message that says what to edit."""
