"""Predict from a review whether a guest would return. docs/text.md explains this config.

Command   invoke dry-run --config reviews
Expect    accuracy of about 0.97 on 600 held-out texts; training takes about 20 seconds on 2 CPU
          cores
"""

import re
from collections import Counter

import numpy as np
import pandas as pd
from keras import layers

from pipeline.config import Config, Data, Optimizer
from pipeline.data.custom_readers import Rows

LENGTH, MOST_WORDS = 40, 2000


def read_reviews(folder, config):
    """Load the tokens and labels in train.csv, and build the vocabulary."""
    table = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    counts = Counter(word for text in table["text"] for word in words(text))
    vocabulary = [word for word, times in counts.most_common(MOST_WORDS) if times > 1]
    return Rows(
        ids=table["id"].tolist(),
        inputs=tokens(table["text"], vocabulary),
        labels=table["again"],
        state=vocabulary,
    )


def read_test_reviews(folder, config, ids, state):
    """Load the tokens for the given ids, using the training vocabulary."""
    table = pd.read_csv(folder / "test.csv", dtype=str, keep_default_na=False).set_index("id")
    return tokens(table["text"].loc[list(ids)], state)


def words(text):
    """Split a text into lowercase words and punctuation marks."""
    return re.findall(r"[a-z0-9']+|[.,!?]", text.lower())


def tokens(texts, vocabulary):
    """Convert texts to word indices, int32 (n, 40), where 1 stands for unknown words.

    Texts are padded with zeros on the left, so that they all end at the same position.
    """
    places = {word: place for place, word in enumerate(vocabulary, start=2)}
    found = np.zeros((len(texts), LENGTH), np.int32)
    for row, text in enumerate(texts):
        own = [places.get(word, 1) for word in words(text)][-LENGTH:]
        found[row, LENGTH - len(own) :] = own
    return found


def word_cnn(tokens, num_classes, batchnorm_momentum, *, width: int = 48, dropout: float = 0.3):
    """Return the logits of a network with two convolutions over word embeddings."""
    x = layers.Embedding(MOST_WORDS + 2, width)(tokens)
    for _ in range(2):
        x = layers.Conv1D(width, 3, padding="same")(x)
        x = layers.BatchNormalization(momentum=batchnorm_momentum)(x)
        x = layers.ReLU()(x)
    x = layers.Dropout(dropout)(layers.Flatten()(x))
    return layers.Dense(num_classes, dtype="float32")(x)


CONFIG = Config(
    name="reviews",
    competition="reviews",
    num_classes=2,
    data=Data(
        kind="custom",
        custom_inputs={"tokens": ("int32", LENGTH)},
        label_column="again",
        labelled=1700,
    ),
    read_training="read_reviews",
    read_test="read_test_reviews",
    model="word_cnn",
    optimizer=Optimizer(name="adam", base_rate=3e-3, base_batch=64),
    batchnorm_momentum=0.95,
    batchnorm_batch=32,
    batch=64,
    epochs=12,
    warmup_epochs=1,
)
