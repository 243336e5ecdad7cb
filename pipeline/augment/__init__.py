"""Random augmentation of training images, computed on the devices as part of the training step.

The host draws integers for each position in a batch, and the devices use only integer arithmetic,
so batches are bitwise identical on any number of devices and after resuming.
"""
