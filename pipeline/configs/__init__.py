"""One short file a competition: what it is, what to expect, and what differs from the defaults."""
