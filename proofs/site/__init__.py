"""The proof of the site's ways: what was reported of it happens here, and the relay handles it."""
