"""Site: what the real Kaggle may do, and what the relay then does."""
