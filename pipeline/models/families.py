"""Describe KerasHub's model families and well-known presets.

A preset consists of a class name and its arguments. `FAMILIES` adds details that a preset may lack.
`KNOWN` contains the arguments of presets, so `plan` and `python -m pipeline preset` can use them
without a download.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Pixels(NamedTuple):
    """A network's image preprocessing: pixels x scale + offset, for pixels from 0 to 255.

    `scale` and `offset` each have a single number, or one number per channel (red, green, blue).
    """

    scale: tuple[float, ...]
    offset: tuple[float, ...]


def standardized(means: tuple[float, ...], deviations: tuple[float, ...]) -> Pixels:
    """Return the scale and offset that standardize pixels from 0 to 255.

    Args:
        means, deviations: mean and standard deviation per channel, for pixels from 0 to 1.
    """
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
    """Details about a KerasHub backbone class.

    Attributes:
        licence: licence of the weights that KerasHub publishes.
        pixels: image preprocessing for presets that do not specify it, or None if the network does
            not accept images.
        token: whether the first output token represents the image; if False, the output is a
            feature map to be averaged, or already one vector per image.
        part: argument that contains the image encoder, which has its own class.
    """

    licence: str
    pixels: Pixels | None = None
    token: bool = False
    square: bool = False
    part: str = ""


# From KerasHub 71453d0 (classes, tools/checkpoint_conversion, utils/timm), read 2026-11-28. The
# means and standard deviations come from the original models (DINOv3: facebookresearch/dinov3
# README; ViT and SigLIP: class defaults in transformers; EfficientNet: timm).
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


# Maps KerasHub classes that exist in only one of Kaggle's images to that image. Classes in FAMILIES
# exist in both and produce the same outputs. Measured 2026-11-28 by importing both versions. To
# measure again, run .ci/weekly or `pytest -m slow -n 0 tests/e2e/test_both_images.py -k table`.
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
    """A preset published by KerasHub.

    Attributes:
        kind: class in keras_hub.models, or the class of the image encoder.
        numbers: arguments of the class that differ from its defaults.
        pixels: image preprocessing; None to use the family's `pixels`.
    """

    kind: str
    numbers: Mapping[str, Any]
    parameters: int
    pixels: Pixels | None = None


SIZES = ("num_layers", "hidden_dim", "num_heads", "intermediate_dim")  # of a transformer


def _dinov3(*sizes: int, **more: Any) -> dict[str, Any]:
    shape = {"patch_size": 16, "num_register_tokens": 4, "image_shape": (224, 224, 3)}
    return dict(zip(SIZES, sizes, strict=True)) | shape | {"use_key_bias": False} | more


def _siglip(side: int, *sizes: int, patch: int = 16) -> dict[str, Any]:
    shape = {"patch_size": patch, "image_shape": (side, side, 3)}
    return dict(zip(SIZES, sizes, strict=True)) | shape


def _vit(side: int, *sizes: int) -> dict[str, Any]:
    numbers = _siglip(side, *sizes)
    return numbers | {"mlp_dim": numbers.pop("intermediate_dim")}


def _text(vocabulary: int, *sizes: int) -> dict[str, Any]:
    return {"vocabulary_size": vocabulary, **dict(zip(SIZES, sizes, strict=True))}


def _efficientnet_b(width: float, depth: float) -> dict[str, Any]:
    stages = {
        "width_coefficients": [width] * 7,
        "depth_coefficients": [depth] * 7,
        "squeeze_and_excite_ratios": [0.25] * 7,
        "kernel_sizes": [3, 3, 5, 3, 5, 5, 3],
        "num_repeats": [1, 2, 2, 3, 3, 4, 1],
        "input_filters": [32, 16, 24, 40, 80, 112, 192],
        "output_filters": [16, 24, 40, 80, 112, 192, 320],
        "expansion_ratios": [1, 6, 6, 6, 6, 6, 6],
        "strides": [1, 2, 2, 2, 1, 2, 1],
        "block_types": ["v1"] * 7,
    }
    return {f"stackwise_{name}": values for name, values in stages.items()} | _EFFICIENTNET


def _efficientnet_rw(width: list[float], depth: list[float]) -> dict[str, Any]:
    stages = {
        "width_coefficients": width,
        "depth_coefficients": depth,
        "squeeze_and_excite_ratios": [0, 0, 0, 0.25, 0.25, 0.25],
        "kernel_sizes": [3] * 6,
        "num_repeats": [2, 4, 4, 6, 9, 15],
        "input_filters": [24, 24, 48, 64, 128, 160],
        "output_filters": [24, 48, 64, 128, 160, 272],
        "expansion_ratios": [1, 4, 4, 4, 6, 6],
        "strides": [1, 2, 2, 2, 1, 2],
        "block_types": ["fused"] * 3 + ["unfused"] * 3,
        "force_input_filters": [0] * 6,
        "nores_option": [False] * 6,
    }
    whole = {"activation": "silu", "num_features": 1792, **_EFFICIENTNET}
    return {f"stackwise_{name}": values for name, values in stages.items()} | whole


_EFFICIENTNET = {
    "min_depth": None,
    "use_depth_divisor_as_min_depth": True,
    "cap_round_filter_decrease": True,
    "dropout": 0.0,
    "input_shape": (None, None, 3),
}
_BASE, _LARGE, _SO400M = (12, 768, 12, 3072), (24, 1024, 16, 4096), (27, 1152, 16, 4304)
_GATED = {"use_gated_mlp": True, "hidden_activation": "silu"}
_DINOV3, _SIGLIP, _VIT = "DINOV3Backbone", "SigLIPVisionEncoder", "ViTBackbone"
_EFFICIENT, _ROBERTA, _DEBERTA = "EfficientNetBackbone", "RobertaBackbone", "DebertaV3Backbone"
_V2_S = _efficientnet_rw([1.0] * 6, [1.0] * 6)
_V2_M = _efficientnet_rw([1.2] * 6, [1.2] * 4 + [1.6] * 2)

# The converters above read these hyperparameters from transformers and timm (checked 2026-11-28).
# Parameter counts are from KerasHub 0.26.0 and 0.29.1. For ViT, RoBERTa and DeBERTaV3, they match
# KerasHub's preset lists exactly. For DINOv3, they match after rounding. For EfficientNet, they
# include the BatchNorm statistics and exclude the head, unlike the listed counts.
_PRESETS = {
    "dinov3": {
        "dinov3_vit_small_lvd1689m": Known(_DINOV3, _dinov3(12, 384, 6, 1536), 21_596_544),
        "dinov3_vit_small_plus_lvd1689m": Known(
            _DINOV3, _dinov3(12, 384, 6, 1536, **_GATED), 28_692_864
        ),
        "dinov3_vit_base_lvd1689m": Known(_DINOV3, _dinov3(*_BASE), 85_660_416),
        "dinov3_vit_large_lvd1689m": Known(_DINOV3, _dinov3(*_LARGE), 303_129_600),
        "dinov3_vit_huge_plus_lvd1689m": Known(
            _DINOV3, _dinov3(32, 1280, 20, 5120, **_GATED), 840_592_640
        ),
        "dinov3_vit_large_sat493m": Known(_DINOV3, _dinov3(*_LARGE), 303_129_600, SATELLITE),
    },
    "siglip": {
        "siglip_base_patch16_224": Known(_SIGLIP, _siglip(224, *_BASE), 92_884_420),
        "siglip_base_patch16_256": Known(_SIGLIP, _siglip(256, *_BASE), 92_930_560),
        "siglip_base_patch16_384": Known(_SIGLIP, _siglip(384, *_BASE), 93_176_640),
        "siglip_base_patch16_512": Known(_SIGLIP, _siglip(512, *_BASE), 93_521_152),
        "siglip_large_patch16_256": Known(_SIGLIP, _siglip(256, *_LARGE), 315_956_480),
        "siglip_large_patch16_384": Known(_SIGLIP, _siglip(384, *_LARGE), 316_284_480),
        "siglip_so400m_patch14_224": Known(_SIGLIP, _siglip(224, *_SO400M, patch=14), 427_680_960),
        "siglip_so400m_patch14_384": Known(_SIGLIP, _siglip(384, *_SO400M, patch=14), 428_226_329),
        "siglip2_base_patch16_224": Known(_SIGLIP, _siglip(224, *_BASE), 92_884_420),
        "siglip2_base_patch16_256": Known(_SIGLIP, _siglip(256, *_BASE), 92_930_560),
        "siglip2_base_patch16_384": Known(_SIGLIP, _siglip(384, *_BASE), 93_176_640),
        "siglip2_large_patch16_256": Known(_SIGLIP, _siglip(256, *_LARGE), 315_956_480),
        "siglip2_large_patch16_384": Known(_SIGLIP, _siglip(384, *_LARGE), 316_284_480),
    },
    "vit": {
        "vit_base_patch16_224_imagenet": Known(_VIT, _vit(224, *_BASE), 85_798_656),
        "vit_base_patch16_384_imagenet": Known(_VIT, _vit(384, *_BASE), 86_090_496),
        "vit_large_patch16_224_imagenet": Known(_VIT, _vit(224, *_LARGE), 303_301_632),
        "vit_large_patch16_384_imagenet": Known(_VIT, _vit(384, *_LARGE), 303_690_752),
        "vit_base_patch16_224_imagenet21k": Known(_VIT, _vit(224, *_BASE), 85_798_656),
        "vit_large_patch16_224_imagenet21k": Known(_VIT, _vit(224, *_LARGE), 303_301_632),
    },
    "efficientnet": {
        "efficientnet_b0_ra_imagenet": Known(_EFFICIENT, _efficientnet_b(1.0, 1.0), 4_049_564),
        "efficientnet_b1_ft_imagenet": Known(_EFFICIENT, _efficientnet_b(1.0, 1.1), 6_575_232),
        "efficientnet_b2_ra_imagenet": Known(_EFFICIENT, _efficientnet_b(1.1, 1.2), 7_768_562),
        "efficientnet_b3_ra2_imagenet": Known(_EFFICIENT, _efficientnet_b(1.2, 1.4), 10_783_528),
        "efficientnet_b4_ra2_imagenet": Known(_EFFICIENT, _efficientnet_b(1.4, 1.8), 17_673_816),
        "efficientnet2_rw_s_ra2_imagenet": Known(_EFFICIENT, _V2_S, 22_309_144),
        "efficientnet2_rw_m_agc_imagenet": Known(_EFFICIENT, _V2_M, 51_390_674),
    },
    "roberta": {
        "roberta_base_en": Known(_ROBERTA, _text(50265, *_BASE), 124_052_736),
        "roberta_large_en": Known(_ROBERTA, _text(50265, *_LARGE), 354_307_072),
    },
    "deberta_v3": {
        "deberta_v3_extra_small_en": Known(_DEBERTA, _text(128100, 12, 384, 6, 1536), 70_682_112),
        "deberta_v3_small_en": Known(_DEBERTA, _text(128100, 6, 768, 12, 3072), 141_304_320),
        "deberta_v3_base_en": Known(_DEBERTA, _text(128100, *_BASE), 183_831_552),
        "deberta_v3_large_en": Known(_DEBERTA, _text(128100, *_LARGE), 434_012_160),
    },
}
# Keys are Kaggle model names without a version.
KNOWN = {
    f"keras/{family}/keras/{name}": known
    for family, presets in _PRESETS.items()
    for name, known in presets.items()
}
