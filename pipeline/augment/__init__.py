"""Random changes of training images, computed on the devices within the training step.

The host draws integers, a row for each place in a batch, and the devices compute with integers
only. So a batch has the same bits on any number of devices, and after any resume.
"""
