"""One short file a competition: what it is, what to expect, and the differences from the defaults."""
