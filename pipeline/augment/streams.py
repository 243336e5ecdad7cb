"""Streams: independent streams of random numbers from one seed, one for each purpose.

So an option that is enabled does not change the random numbers of others.

    random = np.random.default_rng((seed, Stream.ORDER, epoch))
"""

from enum import IntEnum


class Stream(IntEnum):
    """The purpose of random numbers: the second part of each generator's seed.

    Numbers must not change, or a seed would give different batches. 6 is free. A new stream gets
    the next number.
    """

    ORDER = 1  # of the images in an epoch
    CROPS = 2  # and flips
    FOLDS = 3  # which rows validate
    MIXTURES = 4
    RAND_AUGMENT = 5
    HIDDEN_ROWS = 7  # which rows a rehearsal hides
    CUSTOM = 8  # the keys of a custom augmentation
    VERTICAL_FLIPS = 9
    QUARTER_TURNS = 10
    RESIZED_CROPS = 11
    CUSTOM_MIXTURES = 12  # the keys of a custom mix of a group
    SAMPLER = 13  # which rows an epoch has
    CUSTOM_LOSS = 14  # the keys of a loss that draws
