"""Random augmentation of training images, computed on the devices as part of the training step.

The host draws integers for each position in a batch, and the devices use only integer arithmetic.
Batches are therefore bitwise identical on any number of devices and after resuming.
"""
