"""Published networks in numbers: families of KerasHub, and the sizes of well-known presets.

A preset says of what class it is, and by which numbers that is built. What it may not say (how its
pixels were prepared, which of its outputs stands for an image) is in `FAMILIES`. `KNOWN` has the
numbers of presets that need not be here: for `plan`, and for `python -m pipeline preset`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Pixels(NamedTuple):
    """What a network was trained with: pixels x scale + offset, of pixels from 0 to 255.

    Attributes:
        scale: one factor, or one per colour (red, green, blue).
        offset: the same.
    """

    scale: tuple[float, ...]
    offset: tuple[float, ...]


def standardized(means: tuple[float, ...], deviations: tuple[float, ...]) -> Pixels:
    """Return the numbers for pixels from 0 to 1, less a mean, divided by a deviation."""
    return Pixels(
        tuple(1 / (255 * deviation) for deviation in deviations),
        tuple(-mean / deviation for mean, deviation in zip(means, deviations, strict=True)),
    )


IMAGENET = standardized((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SATELLITE = standardized((0.430, 0.411, 0.296), (0.213, 0.156, 0.143))
AROUND_ZERO = Pixels((1 / 127.5,), (-1.0,))
APACHE = "Apache 2.0"


@dataclass(frozen=True)
class Family:
    """What is known of a class of KerasHub.

    Attributes:
        licence: of the weights that KerasHub publishes.
        pixels: how it was trained, where a preset says nothing; None: it takes no images.
        token: whether the first of its tokens stands for an image. False: the mean of a map of
            pixels does, or its output is one already.
        square: whether it takes square images alone.
        part: of the class, which is what sees the images: an argument, and a class of its own.
    """

    licence: str
    pixels: Pixels | None = None
    token: bool = False
    square: bool = False
    part: str = ""


# Read 2026-11-28 in KerasHub 71453d0: classes, tools/checkpoint_conversion and utils/timm. Means
# and deviations: of the models that these convert (DINOv3: README of facebookresearch/dinov3; ViT,
# SigLIP: the defaults of their classes in transformers; EfficientNet: timm's).
FAMILIES = {
    "DINOV3Backbone": Family("DINOv3 License of Meta", IMAGENET, token=True),
    "DINOV2Backbone": Family(APACHE, IMAGENET, token=True),
    "SigLIPBackbone": Family(APACHE, part="vision_encoder"),
    "SigLIPVisionEncoder": Family(APACHE, AROUND_ZERO, square=True),
    "ViTBackbone": Family(APACHE, AROUND_ZERO, token=True),
    "DeiTBackbone": Family(APACHE, IMAGENET, token=True),
    "EfficientNetBackbone": Family(APACHE, IMAGENET),
    "RobertaBackbone": Family("MIT"),
    "DebertaV3Backbone": Family("MIT"),
}


# The classes of KerasHub that one of Kaggle's images has and the other one lacks, by the image that
# has them. Those of FAMILIES are in both, and give the same outputs. Measured by importing both
# versions, 2026-11-28; .ci/weekly does so again, and so does
# `pytest -m slow -n 0 tests/e2e/test_both_images.py -k table`.
MEASURED = {"tpu": "0.29.1", "gpu": "0.26.0"}
ONE_IMAGE_HAS = dict.fromkeys(
    (
        *("Gemma3nBackbone", "Gemma4Backbone", "Qwen3_5Backbone", "T5Gemma2Backbone"),
        *("MetaCLIP2Backbone", "MetaCLIP2TextEncoder", "MetaCLIP2VisionEncoder"),
        *("SwinTransformerBackbone", "VideoPrismBackbone"),
    ),
    "tpu",
)


class Known(NamedTuple):
    """A preset that KerasHub publishes.

    Attributes:
        kind: its class in keras_hub.models, or that of the part that sees images.
        numbers: the arguments of the class that are not its defaults.
        parameters: how many weights these make.
        pixels: how it was trained; None: as its family.
    """

    kind: str
    numbers: Mapping[str, Any]
    parameters: int
    pixels: Pixels | None = None


def _transformer(names: str, *values: Any) -> dict[str, Any]:
    return dict(zip(names.split(), values, strict=True))


def _dinov3(layers: int, width: int, heads: int, inner: int, **more: Any) -> dict[str, Any]:
    names = "num_layers hidden_dim num_heads intermediate_dim patch_size num_register_tokens"
    sizes = _transformer(names, layers, width, heads, inner, 16, 4)
    return {**sizes, "use_key_bias": False, "image_shape": (224, 224, 3), **more}


def _siglip(side: int, layers: int, width: int, heads: int, inner: int, patch: int) -> Any:
    names = "num_layers hidden_dim num_heads intermediate_dim patch_size image_shape"
    return _transformer(names, layers, width, heads, inner, patch, (side, side, 3))


def _vit(side: int, layers: int, width: int, heads: int, inner: int, patch: int) -> Any:
    names = "num_layers hidden_dim num_heads mlp_dim patch_size image_shape"
    return _transformer(names, layers, width, heads, inner, patch, (side, side, 3))


def _text(vocabulary: int, layers: int, width: int, heads: int, inner: int) -> dict[str, Any]:
    names = "vocabulary_size num_layers hidden_dim num_heads intermediate_dim"
    return _transformer(names, vocabulary, layers, width, heads, inner)


def _efficientnet_b(width: float, depth: float) -> dict[str, Any]:
    return {
        "stackwise_width_coefficients": [width] * 7,
        "stackwise_depth_coefficients": [depth] * 7,
        "stackwise_squeeze_and_excite_ratios": [0.25] * 7,
        "stackwise_kernel_sizes": [3, 3, 5, 3, 5, 5, 3],
        "stackwise_num_repeats": [1, 2, 2, 3, 3, 4, 1],
        "stackwise_input_filters": [32, 16, 24, 40, 80, 112, 192],
        "stackwise_output_filters": [16, 24, 40, 80, 112, 192, 320],
        "stackwise_expansion_ratios": [1, 6, 6, 6, 6, 6, 6],
        "stackwise_strides": [1, 2, 2, 2, 1, 2, 1],
        "stackwise_block_types": ["v1"] * 7,
        **_EFFICIENTNET,
    }


def _efficientnet_rw(width: list[float], depth: list[float], last: int, **more: Any) -> Any:
    return {
        "stackwise_width_coefficients": width,
        "stackwise_depth_coefficients": depth,
        "stackwise_squeeze_and_excite_ratios": [0, 0, 0, 0.25, 0.25, 0.25],
        "stackwise_kernel_sizes": [3] * 6,
        "stackwise_num_repeats": [2, 4, 4, 6, 9, 15],
        "stackwise_input_filters": [24, 24, 48, 64, 128, 160],
        "stackwise_output_filters": [24, 48, 64, 128, 160, last],
        "stackwise_expansion_ratios": [1, 4, 4, 4, 6, 6],
        "stackwise_strides": [1, 2, 2, 2, 1, 2],
        "stackwise_block_types": ["fused"] * 3 + ["unfused"] * 3,
        "stackwise_force_input_filters": [0] * 6,
        "stackwise_nores_option": [False] * 6,
        "activation": "silu",
        **_EFFICIENTNET,
        **more,
    }


_EFFICIENTNET = {
    "min_depth": None,
    "use_depth_divisor_as_min_depth": True,
    "cap_round_filter_decrease": True,
    "dropout": 0.0,
    "input_shape": (None, None, 3),
}
_BASE, _LARGE = (12, 768, 12, 3072), (24, 1024, 16, 4096)
_GATED = {"use_gated_mlp": True, "hidden_activation": "silu"}
_DINOV3, _SIGLIP, _VIT = "DINOV3Backbone", "SigLIPVisionEncoder", "ViTBackbone"
_EFFICIENT, _ROBERTA, _DEBERTA = "EfficientNetBackbone", "RobertaBackbone", "DebertaV3Backbone"

# By the model of Kaggle, without its version. Numbers: those that the converters above take from
# transformers and timm, read 2026-11-28. Parameters: as KerasHub 0.26.0 and 0.29.1 count them. For
# ViT, RoBERTa and DeBERTaV3 they are to the unit what KerasHub's lists of presets say; for DINOv3
# they round to it; for EfficientNet they are its own, plus BatchNorm's statistics, less the head.
KNOWN = {
    "keras/dinov3/keras/dinov3_vit_small_lvd1689m": Known(
        _DINOV3, _dinov3(12, 384, 6, 1536), 21_596_544
    ),
    "keras/dinov3/keras/dinov3_vit_small_plus_lvd1689m": Known(
        _DINOV3, _dinov3(12, 384, 6, 1536, **_GATED), 28_692_864
    ),
    "keras/dinov3/keras/dinov3_vit_base_lvd1689m": Known(_DINOV3, _dinov3(*_BASE), 85_660_416),
    "keras/dinov3/keras/dinov3_vit_large_lvd1689m": Known(_DINOV3, _dinov3(*_LARGE), 303_129_600),
    "keras/dinov3/keras/dinov3_vit_huge_plus_lvd1689m": Known(
        _DINOV3, _dinov3(32, 1280, 20, 5120, **_GATED), 840_592_640
    ),
    "keras/dinov3/keras/dinov3_vit_large_sat493m": Known(
        _DINOV3, _dinov3(*_LARGE), 303_129_600, SATELLITE
    ),
    "keras/siglip/keras/siglip_base_patch16_224": Known(
        _SIGLIP, _siglip(224, *_BASE, 16), 92_884_420
    ),
    "keras/siglip/keras/siglip_base_patch16_256": Known(
        _SIGLIP, _siglip(256, *_BASE, 16), 92_930_560
    ),
    "keras/siglip/keras/siglip_base_patch16_384": Known(
        _SIGLIP, _siglip(384, *_BASE, 16), 93_176_640
    ),
    "keras/siglip/keras/siglip_base_patch16_512": Known(
        _SIGLIP, _siglip(512, *_BASE, 16), 93_521_152
    ),
    "keras/siglip/keras/siglip_large_patch16_256": Known(
        _SIGLIP, _siglip(256, *_LARGE, 16), 315_956_480
    ),
    "keras/siglip/keras/siglip_large_patch16_384": Known(
        _SIGLIP, _siglip(384, *_LARGE, 16), 316_284_480
    ),
    "keras/siglip/keras/siglip_so400m_patch14_224": Known(
        _SIGLIP, _siglip(224, 27, 1152, 16, 4304, 14), 427_680_960
    ),
    "keras/siglip/keras/siglip_so400m_patch14_384": Known(
        _SIGLIP, _siglip(384, 27, 1152, 16, 4304, 14), 428_226_329
    ),
    "keras/siglip/keras/siglip2_base_patch16_224": Known(
        _SIGLIP, _siglip(224, *_BASE, 16), 92_884_420
    ),
    "keras/siglip/keras/siglip2_base_patch16_256": Known(
        _SIGLIP, _siglip(256, *_BASE, 16), 92_930_560
    ),
    "keras/siglip/keras/siglip2_base_patch16_384": Known(
        _SIGLIP, _siglip(384, *_BASE, 16), 93_176_640
    ),
    "keras/siglip/keras/siglip2_large_patch16_256": Known(
        _SIGLIP, _siglip(256, *_LARGE, 16), 315_956_480
    ),
    "keras/siglip/keras/siglip2_large_patch16_384": Known(
        _SIGLIP, _siglip(384, *_LARGE, 16), 316_284_480
    ),
    "keras/vit/keras/vit_base_patch16_224_imagenet": Known(_VIT, _vit(224, *_BASE, 16), 85_798_656),
    "keras/vit/keras/vit_base_patch16_384_imagenet": Known(_VIT, _vit(384, *_BASE, 16), 86_090_496),
    "keras/vit/keras/vit_large_patch16_224_imagenet": Known(
        _VIT, _vit(224, *_LARGE, 16), 303_301_632
    ),
    "keras/vit/keras/vit_large_patch16_384_imagenet": Known(
        _VIT, _vit(384, *_LARGE, 16), 303_690_752
    ),
    "keras/vit/keras/vit_base_patch16_224_imagenet21k": Known(
        _VIT, _vit(224, *_BASE, 16), 85_798_656
    ),
    "keras/vit/keras/vit_large_patch16_224_imagenet21k": Known(
        _VIT, _vit(224, *_LARGE, 16), 303_301_632
    ),
    "keras/efficientnet/keras/efficientnet_b0_ra_imagenet": Known(
        _EFFICIENT, _efficientnet_b(1.0, 1.0), 4_049_564
    ),
    "keras/efficientnet/keras/efficientnet_b1_ft_imagenet": Known(
        _EFFICIENT, _efficientnet_b(1.0, 1.1), 6_575_232
    ),
    "keras/efficientnet/keras/efficientnet_b2_ra_imagenet": Known(
        _EFFICIENT, _efficientnet_b(1.1, 1.2), 7_768_562
    ),
    "keras/efficientnet/keras/efficientnet_b3_ra2_imagenet": Known(
        _EFFICIENT, _efficientnet_b(1.2, 1.4), 10_783_528
    ),
    "keras/efficientnet/keras/efficientnet_b4_ra2_imagenet": Known(
        _EFFICIENT, _efficientnet_b(1.4, 1.8), 17_673_816
    ),
    "keras/efficientnet/keras/efficientnet2_rw_s_ra2_imagenet": Known(
        _EFFICIENT, _efficientnet_rw([1.0] * 6, [1.0] * 6, 272, num_features=1792), 22_309_144
    ),
    "keras/efficientnet/keras/efficientnet2_rw_m_agc_imagenet": Known(
        _EFFICIENT,
        _efficientnet_rw([1.2] * 6, [1.2] * 4 + [1.6] * 2, 272, num_features=1792),
        51_390_674,
    ),
    "keras/roberta/keras/roberta_base_en": Known(_ROBERTA, _text(50265, *_BASE), 124_052_736),
    "keras/roberta/keras/roberta_large_en": Known(_ROBERTA, _text(50265, *_LARGE), 354_307_072),
    "keras/deberta_v3/keras/deberta_v3_extra_small_en": Known(
        _DEBERTA, _text(128100, 12, 384, 6, 1536), 70_682_112
    ),
    "keras/deberta_v3/keras/deberta_v3_small_en": Known(
        _DEBERTA, _text(128100, 6, 768, 12, 3072), 141_304_320
    ),
    "keras/deberta_v3/keras/deberta_v3_base_en": Known(
        _DEBERTA, _text(128100, *_BASE), 183_831_552
    ),
    "keras/deberta_v3/keras/deberta_v3_large_en": Known(
        _DEBERTA, _text(128100, *_LARGE), 434_012_160
    ),
}
