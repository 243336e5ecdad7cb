"""Crops, turns, operations and mixtures are correct, the same on every platform, and depend only on
seed and step.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from pipeline.augment import rand_augment
from pipeline.augment.augmentation import CHANGES, Augmentation
from pipeline.augment.geometry import enlarge
from pipeline.config import Data
from pipeline.config.data_layout import AUGMENTATIONS
from pipeline.data import labels as target
from pipeline.data.dataset import Weighted
from pipeline.errors import ConfigError
from pipeline.infer.views import views as views_of
from pipeline.train.step import Examples, TrainStep
from tests.pipeline.handmade import with_data
from tests.pipeline.rounding import EPS
from tests.shipped import shipped

DIGITS = shipped("digits")
RANDOM = np.random.default_rng(0)


def augmented(images, seed=0, step=0, **fields):
    """Return images, and the share of each that is its own, after changes by fields of Data."""
    sides = dict(zip(("height", "width", "channels"), images.shape[1:], strict=True))
    changes = Augmentation(Data(**sides, **fields), seed, len(images))
    return jax.jit(changes.applied)(images, changes.draws(step))


def windows(image, side):
    height, width = image.shape[:2]
    around = np.pad(image, ((side, side), (side, side), (0, 0)))
    places = range(2 * side + 1)
    return [around[y : y + height, x : x + width] for y in places for x in places]


def test_all_windows_of_the_padded_image_occur():
    """Zeros enter from the sides as far as the padding; no pixel comes from a different image."""
    pixels = RANDOM.integers(1, 256, (2, 5, 6, 3), dtype=np.uint8)

    crops = np.asarray(augmented(np.tile(pixels, (400, 1, 1, 1)), crop_padding=2)[0])

    for place, image in enumerate(pixels):
        allowed = {window.tobytes() for window in windows(image, 2)}
        assert {each.tobytes() for each in crops[place::2]} == allowed


def test_a_flip_mirrors_left_to_right_about_half_of_the_images():
    """Never top to bottom; half to within six standard deviations of a binomial count."""
    pixels = RANDOM.integers(0, 256, (1, 4, 4, 3), dtype=np.uint8)

    images = np.asarray(augmented(np.repeat(pixels, 400, 0), flip=True)[0])

    mirrored = (images == pixels[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (mirrored ^ (images == pixels).all(axis=(1, 2, 3))).all()
    assert abs(mirrored.sum() - 200) < 6 * 10


def on(platform, monkeypatch):
    """Let platform-dependent code compute as on this platform."""

    def chosen(*given, default, **ways):
        return ways.get(platform, default)(*given)

    monkeypatch.setattr(jax.lax, "platform_dependent", chosen)
    jax.clear_caches()


sides = st.integers(1, 300)


@given(sides, sides, st.floats(0.01, 1), st.integers(0, 9))
def test_a_window_lies_within_the_image_and_has_the_shape_and_share_that_were_asked_for(
    height, width, least, step
):
    """But for rounding to whole pixels, or it is the whole image."""
    data = Data(height=height, width=width, channels=3, crop_scale=least)
    draws = Augmentation(data, 1, 50).draws(step)

    top, rows, left, columns = draws.T
    assert (top >= 0).all() and (left >= 0).all() and (rows > 0).all() and (columns > 0).all()
    assert (top + rows <= height).all() and (left + columns <= width).all()
    part = draws[(rows < height) | (columns < width)].T
    _, rows, _, columns = part
    assert ((rows + 0.5) * (columns + 0.5) >= least * height * width).all()
    assert ((columns + 0.5) / np.maximum(rows - 0.5, 0.1) >= 3 / 4).all()
    assert (np.maximum(columns - 0.5, 0) / (rows + 0.5) <= 4 / 3).all()


def test_windows_have_every_share_of_the_area_alike():
    """Half of the shares from 0.2 to 1 are below 0.6, except for shapes that do not fit."""
    data = Data(height=200, width=200, channels=3, crop_scale=0.2)
    draws = Augmentation(data, 1, 4000).draws(0)

    share = draws[:, 1] * draws[:, 3] / 200**2
    assert share.min() < 0.21 and share.max() > 0.95
    assert 0.5 < (share < 0.6).mean() < 0.62


@pytest.mark.parametrize("platform", ["tpu", "default"])
def test_a_window_is_enlarged_as_by_pillow_on_every_platform(platform, monkeypatch):
    """Each of two passes loses at most a level by steps of 1/256 and half a level by rounding."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (4, 20, 31, 3), np.uint8)
    changes = Augmentation(Data(height=20, width=31, channels=3, crop_scale=0.1), 0, 4)
    draws = changes.draws(0)
    draws[0] = 0, 20, 0, 31  # the whole image stays as it is
    on(platform, monkeypatch)

    found = np.asarray(jax.jit(changes.applied)(images, draws)[0])

    assert found.dtype == np.uint8 and np.array_equal(found[0], images[0])
    for image, (top, rows, left, columns), ours in zip(images, draws, found, strict=True):
        window = Image.fromarray(image[top : top + rows, left : left + columns])
        theirs = np.asarray(window.resize((31, 20), Image.Resampling.BILINEAR))
        assert np.abs(ours.astype(int) - theirs).max() <= 4


@pytest.mark.parametrize(("flip", "rotate"), [(True, False), (False, True), (True, True)])
def test_all_turns_are_equally_frequent(flip, rotate):
    """With both, four of the eight arise in two ways each."""
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    quarters = [np.rot90(image, number) for number in range(4 if rotate else 1)]
    forms = [*quarters, *(each[::-1] for each in quarters if flip)]

    turned = augmented(np.repeat(image[None], 800, 0), flip_vertical=flip, rotate=rotate)
    found = np.asarray(turned[0])

    counts = [sum(np.array_equal(form, one) for one in found) for form in forms]
    assert sum(counts) == 800
    # Six standard deviations of a binomial count.
    share = 1 / len(forms)
    wide = 6 * (800 * share * (1 - share)) ** 0.5
    assert all(abs(count - 800 * share) < wide for count in counts)


def test_an_option_changes_no_other_option_s_numbers():
    """Each draws from a stream of its own."""
    options = {"crop_padding": 1, "flip": True, "mixup": 0.2}
    more = {"flip_vertical": True, "rotate": True, "crop_scale": 0.3}

    alone, together = (
        Augmentation(replace(DIGITS.data, **fields), 0, 8).draws(3)
        for fields in (options, options | more)
    )

    new = together.shape[1] - alone.shape[1]
    assert new == 4 + 1 + 1 and np.array_equal(together[:, new:], alone)
    assert len({change.stream for change in CHANGES}) == len(CHANGES)
    assert {field for change in CHANGES for field in change.fields} == set(AUGMENTATIONS)


@pytest.mark.parametrize(
    "options",
    [
        {"crop_padding": 2}, {"flip": True}, {"rand_augment": 2}, {"mixup": 0.4}, {"cutmix": 1.0},
        {"crop_scale": 0.3}, {"flip_vertical": True}, {"rotate": True},
    ],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_another_step_and_another_seed_draw_other_numbers(options):
    data = replace(DIGITS.data, **{"crop_padding": 0, "flip": False, **options})

    places = (0, 0), (0, 1), (1, 0)
    drawn = {Augmentation(data, seed, 32).draws(step).tobytes() for seed, step in places}

    assert len(drawn) == 3


def test_all_augmentations_are_made_one_after_the_other():
    """In the order of docs/recipes.md, with a custom function before mixtures, each by the numbers
    that it draws alone.
    """
    order = (
        {"crop_scale": 0.3}, {"rotate": True}, {"flip_vertical": True},
        {"crop_padding": 1, "flip": True}, {"rand_augment": 1},
    )  # fmt: skip
    images, mixup = RANDOM.integers(0, 256, (8, 8, 8, 1), np.uint8), {"mixup": 0.2}
    plain = {"crop_padding": 0, "flip": False}
    all_fields = {name: value for fields in order for name, value in fields.items()} | mixup
    data = replace(DIGITS.data, **all_fields)
    changes = Augmentation(data, 5, 8, lambda image, key: 255 - image)

    expected = images
    for fields in order:
        one = Augmentation(replace(DIGITS.data, **{**plain, **fields}), 5, 8)
        expected = one.applied(expected, one.draws(2))[0]
    mixed = Augmentation(replace(DIGITS.data, **plain, **mixup), 5, 8)
    expected, shares = mixed.applied(255 - expected, mixed.draws(2))

    found, own = changes.applied(images, changes.draws(2))
    assert np.array_equal(found, expected) and np.array_equal(own, shares)


@pytest.mark.parametrize(
    ("option", "other"), [("flip_vertical", [2, 3, 0, 1]), ("flip", [1, 0, 3, 2])]
)
def test_views_turn_images_over_as_training_did(option, other):
    """Without crops there is no third view."""
    data = replace(DIGITS.data, crop_padding=0, **{option: True})
    image = np.arange(4, dtype=np.uint8).reshape(1, 2, 2, 1)

    views = views_of(data, 9)

    assert [view.apply(image).ravel().tolist() for view in views] == [[0, 1, 2, 3], other]
    assert replace(DIGITS, data=data, views=2).views == 2
    with pytest.raises(ConfigError, match=rf"at most 2, .*data.{option}"):
        replace(DIGITS, data=data, views=3)


@pytest.mark.parametrize(
    ("fields", "number"),
    [(("rotate",), 4), (("rotate", "flip"), 8), (("rotate", "flip", "flip_vertical"), 8)],
)
def test_a_turned_image_has_the_views_of_the_image(fields, number):
    """The first two, four and eight views of an image and of its views are the same set, so their
    mean prediction is, too. One view more is refused.
    """
    data = replace(DIGITS.data, crop_padding=0, **dict.fromkeys(fields, True))
    image = RANDOM.integers(0, 256, (1, 6, 6, 1), dtype=np.uint8)
    views = views_of(data, 99)

    assert len(views) == number == replace(DIGITS, data=data, views=number).views
    for count in (2, 4, number):
        of_image = {view.apply(image).tobytes() for view in views[:count]}
        assert len(of_image) == count
        for view in views[:count]:
            turned = view.apply(image)
            assert {other.apply(turned).tobytes() for other in views[:count]} == of_image
    with pytest.raises(ConfigError, match=rf"at most {number}, .*data.rotate"):
        replace(DIGITS, data=data, views=number + 1)


@pytest.mark.parametrize("shape", [(8, 8, 1), (9, 13, 3), (2, 1, 1), (1, 40, 3)])
@pytest.mark.parametrize("scale", [0.08, 0.5, 0.9])
def test_an_enlarged_view_has_the_pixels_of_a_crop_in_training(shape, scale):
    """Of a window in the middle, with about the mean area of those in training, then less."""
    sides = dict(zip(("height", "width", "channels"), shape, strict=True))
    data = Data(**sides, crop_scale=scale)
    images = RANDOM.integers(0, 256, (3, *shape), dtype=np.uint8)
    whole, *zooms = views_of(data, 99)

    assert np.array_equal(whole.apply(images), images) and len(zooms) == 2
    assert 2 * zooms[0].zoom ** 2 == pytest.approx(1 + scale)
    assert 4 * zooms[1].zoom ** 2 == pytest.approx(3 + scale)
    for view in zooms:
        edges = [round(size * (1 - view.zoom) / 2) for size in shape[:2]]
        window = [
            n for size, edge in zip(shape, edges, strict=False) for n in (edge, size - 2 * edge)
        ]
        expected = enlarge(jnp.array(images), jnp.array([window] * 3), data)
        assert np.array_equal(view.apply(images), expected)


def test_useful_views_come_first():
    """Mirrored and turned ones, then enlarged ones, then shifts, each in all positions."""
    every = dict.fromkeys(("flip", "rotate"), True) | {"crop_scale": 0.5, "crop_padding": 1}
    views = views_of(replace(DIGITS.data, **every), 99)

    assert len(views) == len(set(views)) == 8 * (1 + 2 + 4)
    kinds = [(view.zoom < 1, bool(view.down or view.right)) for view in views]
    assert kinds == [(False, False)] * 8 + [(True, False)] * 16 + [(False, True)] * 32
    assert views[:2] == views_of(replace(DIGITS.data, flip=True), 2)


NAMES = list(rand_augment.OPERATIONS)
operated = jax.jit(  # compiled once for a shape, with all operations
    lambda images, numbers: rand_augment.operated(images, numbers, DIGITS.data)
)
BILINEAR = Image.Resampling.BILINEAR


def smooth(side=48):
    """Return a picture whose neighbouring pixels are alike, as a photograph's."""
    y, x = np.mgrid[:side, :side] / side
    waves = np.stack([np.sin(6 * x + 3 * y), np.cos(9 * x * y), 2 * x * y - 1], axis=-1)
    return (127.5 + 110 * waves).astype(np.uint8)


def changed(pixels, name, strength):
    """Return one image after one operation."""
    chosen = np.full((1, 1), NAMES.index(name))
    draws = rand_augment.numbers(chosen, np.full((1, 1), strength), pixels.shape)
    return np.asarray(operated(pixels[None], draws.reshape(1, -1)))[0]


def moved(matrix):
    """Return Pillow's affine transform by these six functions of the strength, or numbers."""

    def move(image, by):
        given = [value(by) if callable(value) else value for value in matrix]
        return image.transform(image.size, Image.Transform.AFFINE, given, BILINEAR)

    return move


def enhanced(kind):
    return lambda image, by: kind(image).enhance(1 + 0.9 * by)


PILLOW = {
    "identity": lambda image, by: image,
    "autocontrast": lambda image, by: ImageOps.autocontrast(image),
    "equalize": lambda image, by: ImageOps.equalize(image),
    "rotate": lambda image, by: image.rotate(30 * by, BILINEAR),
    "solarize": lambda image, by: ImageOps.solarize(image, round(256 * (1 - abs(by)))),
    "color": enhanced(ImageEnhance.Color),
    "posterize": lambda image, by: ImageOps.posterize(image, 8 - round(4 * abs(by))),
    "contrast": enhanced(ImageEnhance.Contrast),
    "brightness": enhanced(ImageEnhance.Brightness),
    "sharpness": enhanced(ImageEnhance.Sharpness),
    "shear_x": moved((1, lambda by: 0.3 * by, 0, 0, 1, 0)),
    "shear_y": moved((1, 0, 0, lambda by: 0.3 * by, 1, 0)),
    "translate_x": moved((1, 0, lambda by: 0.45 * 48 * by, 0, 1, 0)),
    "translate_y": moved((1, 0, 0, 0, 1, lambda by: 0.45 * 48 * by)),
}


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_gives_what_pillow_s_gives(name):
    """To one level; for a rotation, which resamples twice, except at the border."""
    pixels = smooth()
    for strength in (-0.7, 0.5, 1.0):
        wanted = np.asarray(PILLOW[name](Image.fromarray(pixels), strength)).astype(int)

        apart = np.abs(changed(pixels, name, strength) - wanted)

        assert np.quantile(apart, 0.9 if name == "rotate" else 1) <= 1
        assert apart.mean() < 1.5


def test_an_operation_without_strength_changes_nothing():
    """Except for the two operations that have none; also for grey images."""
    names = [name for name in NAMES if name not in ("autocontrast", "equalize")]
    pixels = RANDOM.integers(0, 256, (len(names), 9, 12, 1), np.uint8)
    chosen = np.array([[NAMES.index(name)] for name in names])
    draws = rand_augment.numbers(chosen, np.zeros(chosen.shape), pixels.shape[1:])

    assert np.array_equal(operated(pixels, draws.reshape(len(names), -1)), pixels)


def test_each_image_draws_operations_for_itself():
    found = Augmentation(replace(DIGITS.data, rand_augment=2), 5, 32).draws(3)

    assert len({row.tobytes() for row in found}) > 16


def test_an_operation_gives_the_same_bits_on_a_tpu(monkeypatch):
    """Products of matrices in place of gathers, and comparisons in place of counting."""
    pixels = RANDOM.integers(0, 256, (48, 48, 3), np.uint8)
    found = [changed(pixels, name, 0.7) for name in NAMES]

    on("tpu", monkeypatch)

    assert np.array_equal([changed(pixels, name, 0.7) for name in NAMES], found)


SHAPE = 12, 10, 3
IMAGES = np.random.default_rng(0).integers(0, 256, (16, *SHAPE), np.uint8)


def mixed(images, seed, step, **alphas):
    """Return the mixed images, and the share of each that is its own."""
    return tuple(map(np.asarray, augmented(images, seed, step, **alphas)))


def neighbour(values):
    return values[np.arange(len(values)) ^ 1]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), step=st.integers(0, 10**6))
def test_mixup_is_the_weighted_mean_of_an_image_and_its_neighbour(seed, step):
    found, own = mixed(IMAGES, seed, step, mixup=0.4)

    weight = own[:, None, None, None]
    assert found.dtype == np.uint8
    assert ((own >= 0) & (own <= 1)).all()
    # Half a level, and the rounding of a sum of numbers up to 255.
    bound = 0.5 + 4 * 255 * EPS
    assert np.abs(found - (weight * IMAGES + (1 - weight) * neighbour(IMAGES))).max() <= bound


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), step=st.integers(0, 10**6))
def test_cutmix_replaces_a_rectangle_of_the_area_that_it_says(seed, step):
    """Each image has its own value, so that each pixel shows its origin."""
    own = np.broadcast_to(np.arange(1, 17, dtype=np.uint8)[:, None, None, None], (16, *SHAPE))

    found, share = mixed(own, seed, step, cutmix=1.0)

    for image, place, part in zip(found[..., 0], range(16), share, strict=True):
        theirs = image != place + 1
        assert set(image[theirs]) <= {(place ^ 1) + 1}
        assert part == pytest.approx(1 - theirs.mean(), abs=4 * EPS)
        if theirs.any():
            rows, columns = (np.flatnonzero(theirs.any(axis=axis)) for axis in (1, 0))
            assert theirs[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()


def test_shares_of_mixup_are_drawn_from_the_beta_distribution():
    """Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2 a + 1)). Twenty thousand shares, of a
    fixed seed, are within 5 % of them.
    """
    for alpha in (0.2, 1.0):
        _, own = mixed(np.zeros((20_000, 1, 1, 1), np.uint8), 0, 0, mixup=alpha)

        assert float(own.mean()) == pytest.approx(0.5, rel=0.05)
        assert float(own.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


def test_with_mixup_and_cutmix_each_image_gets_one_of_them():
    own = np.broadcast_to(np.array([0, 200] * 8, np.uint8)[:, None, None, None], (16, *SHAPE))

    found, _ = mixed(own, 1, 0, mixup=8.0, cutmix=1.0)

    between = [bool(((image != 0) & (image != 200)).any()) for image in found]
    assert 2 <= sum(between) <= 14


def alike(labels):
    """Return labels of rows that count alike."""
    return Weighted(labels, np.ones(len(labels), np.float32))


def judging(kind):
    """Return a step of which only the loss is used, for this kind of target."""
    step = object.__new__(TrainStep)
    step.config = replace(DIGITS, num_classes=4)
    object.__setattr__(step.config, "target", kind)
    step._axis = step.together = None
    return step


@pytest.mark.parametrize("kind", ["classes", "ordinal", "multilabel", "regression"])
def test_the_loss_of_a_mixture_has_the_gradient_of_the_mixed_truth(kind):
    """With probabilities (or numbers) mixed by hand."""
    random, number, outputs = np.random.default_rng(1), 6, 4
    logits = random.normal(size=(number, outputs)).astype(np.float32)
    own = random.random(number).astype(np.float32)
    labels = truth = random.integers(0, 2, (number, outputs)).astype(np.float32)
    if kind in ("classes", "ordinal"):
        labels = random.integers(0, outputs, number).astype(np.int32)
        truth = np.eye(outputs, dtype=np.float32)[labels]
    if kind == "ordinal":
        truth = (labels[:, None] > np.arange(outputs)).astype(np.float32)
    wanted = own[:, None] * truth + (1 - own[:, None]) * neighbour(truth)

    def by_hand(values):
        if kind == "classes":
            return -(wanted * jax.nn.log_softmax(values)).sum()
        if kind == "regression":
            return jnp.square(values - wanted).mean(axis=-1).sum()
        each = -(wanted * jax.nn.log_sigmoid(values) + (1 - wanted) * jax.nn.log_sigmoid(-values))
        return (each.sum(axis=-1) if kind == "ordinal" else each.mean(axis=-1)).sum()

    step, mixture = judging(kind), (alike(labels), alike(neighbour(labels)), own)

    def judged(values):
        return step._losses(Examples(None, *mixture, None), (values, {}, [], 0), 0)[0]["loss"].sum()

    found, expected = (jax.jit(jax.grad(each))(logits) for each in (judged, by_hand))

    # Numbers of about 1, each from a few dozen operations.
    assert np.allclose(found, expected, rtol=0, atol=100 * EPS)


def test_the_label_of_the_greater_share_counts_as_right():
    labels, logits = np.array([1, 2], np.int32), np.eye(10, dtype=np.float32)[[1, 1]]
    shares = np.array([0.6, 0.3], np.float32)

    mixed = Examples(None, alike(labels), alike(neighbour(labels)), shares, None)
    _, figures = judging("classes")._losses(mixed, (logits, {}, [], 0), 0)

    assert figures.tolist() == [1.0, 1.0]
    assert target.figure("classes", labels, logits).tolist() == [1.0, 0.0]


def test_a_number_is_mixed_and_not_cut():
    made = replace(with_data(DIGITS, mixup=1.0), target="regression", num_classes=0)

    with pytest.raises(ConfigError, match=r"data\.cutmix=1\.0 is invalid"):
        with_data(made, cutmix=1.0)
