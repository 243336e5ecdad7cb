"""From artifacts and a competition's folder to a submission.csv, in time.

The submission has the ids, order and columns of the sample. Nothing here imports training.
"""
