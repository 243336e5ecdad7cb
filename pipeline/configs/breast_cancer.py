"""Classify tumours as malignant or benign from thirty cell measurements. The metric is AUC.

The 369 labelled rows are included.

Command   invoke dry-run --config breast_cancer
Expect    AUC of about 0.99 on 150 held-out rows; training takes a few seconds
"""

from pipeline.config import Baseline, Config, Data, Optimizer

MEASURES = (
    *("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity"),
    *("concave points", "symmetry", "fractal dimension"),
)
NAMES = ("mean {}", "{} error", "worst {}")

CONFIG = Config(
    name="breast_cancer",
    competition="breast-cancer",
    num_classes=2,
    metric="auc",
    data=Data(
        kind="table",
        label_column="malignant",
        labelled=369,
        numeric_columns=tuple(name.format(each) for name in NAMES for each in MEASURES),
    ),
    model="mlp",
    model_options={"width": 32, "depth": 1, "dropout": 0.3},
    optimizer=Optimizer(name="adamw", base_rate=4e-3, base_batch=64, weight_decay=0.03),
    batchnorm_momentum=0.8,
    batchnorm_batch=32,
    batch=64,
    epochs=30,
    warmup_epochs=3,
    # Measured by `invoke inspect` on 2026-11-22.
    baseline=Baseline(
        model="HistGradientBoosting", metric="auc", score=0.9829, error=6.7e-3, rows=369
    ),
)
