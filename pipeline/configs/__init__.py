"""One short file per competition: what it is, what to expect, and the fields without defaults."""
