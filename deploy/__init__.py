"""The Kaggle side: bundle → push → watch → pull → publish → submit."""
