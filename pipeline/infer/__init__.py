"""Write a submission.csv from artifacts and a competition folder within the time limit.

This package does not import training code.
"""
