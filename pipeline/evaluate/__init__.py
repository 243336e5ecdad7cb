"""What a trained model is worth on its held-out rows.

In: examples, and a forward pass. Out: predictions, losses, metrics, and the rows that it is most
wrong about. Never imported here: training or figures.
"""
