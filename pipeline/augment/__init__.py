"""Random changes of training images. In: raw images, seed and step. Out: images as the model sees
them, computed on the devices inside the training step.

The host draws whole numbers, a row for each place of a batch; the devices compute with whole
numbers alone. So a batch has the same bits on any number of devices, in any program, after any
resume.

It reads no file, and builds no model.
"""
