"""Write a submission.csv from artifacts and a competition folder within the time limit.

The submission has the sample's ids, order and columns. This package does not import training code.
"""
