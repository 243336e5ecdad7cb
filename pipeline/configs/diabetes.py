"""Predict the progression of diabetes over a year from ten numbers. The metric is RMSE.

The 292 labelled rows, some with missing values, are included.

Command   invoke dry-run --config diabetes
Expect    RMSE of about 55 on 100 held-out rows (77 for the mean of the training rows); training
          takes a few seconds
"""

from pipeline.config import Baseline, Config, Data, Optimizer

CONFIG = Config(
    name="diabetes",
    competition="diabetes",
    target="regression",
    metric="rmse",
    data=Data(
        kind="table",
        label_column="progression",
        labelled=292,
        numeric_columns=("age", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"),
        categorical_columns=("sex",),
        most_categories=4,
    ),
    model="mlp",
    model_options={"width": 32, "depth": 1, "dropout": 0.3},
    optimizer=Optimizer(name="adamw", base_rate=4e-3, base_batch=64, weight_decay=0.07),
    batchnorm_momentum=0.8,
    batchnorm_batch=32,
    batch=64,
    epochs=40,
    warmup_epochs=4,
    folds=5,
    # Measured by `invoke inspect` on 2026-11-22.
    baseline=Baseline(
        model="HistGradientBoosting", metric="rmse", score=60.24, error=2.3, rows=292
    ),
)
