"""Streams: one seed gives independent streams of random numbers, one for each purpose.

Drawing from one never moves another. So an option that is switched on changes nothing but itself.

    random = np.random.default_rng((seed, Stream.ORDER, epoch))
"""

from enum import IntEnum


class Stream(IntEnum):
    """What random numbers are drawn for; the second part of each generator's seed.

    A number stays what it is: with another one, a seed gives other batches. 6 is free. A new stream
    gets the next number.
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
