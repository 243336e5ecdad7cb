"""A training can be stopped anywhere and moved anywhere, and loses no time to what makes it so."""
