"""One short file per competition: what it is, what to expect, and what differs from defaults."""
