"""Independent streams of random numbers from a single seed, with one stream per purpose.

Enabling an option therefore does not change the random numbers of any other option.
"""

from enum import IntEnum


class Stream(IntEnum):
    """The purpose of a stream, which is the second part of its generator's seed.

    Do not change existing numbers, because a seed would then generate different batches. Use the
    next number for a new stream. The number 6 is not used.
    """

    ORDER = 1  # order of the images in an epoch
    CROPS = 2  # random crops and flips
    FOLDS = 3  # assignment of rows to folds
    MIXTURES = 4
    RAND_AUGMENT = 5
    HIDDEN_ROWS = 7  # rows that a rehearsal holds out
    CUSTOM = 8  # keys for a custom augmentation
    VERTICAL_FLIPS = 9
    QUARTER_TURNS = 10
    RESIZED_CROPS = 11
    CUSTOM_MIXTURES = 12  # keys for custom mixing of a group
    SAMPLER = 13  # rows sampled for an epoch
    CUSTOM_LOSS = 14  # keys for a custom loss that uses random numbers
