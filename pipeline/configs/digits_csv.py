"""Classify handwritten digits in a CSV file, as in Kaggle's Digit Recognizer competition.

The 1,197 labelled rows (8x8 grey images, 10 classes) are included.

Command   invoke dry-run --config digits_csv
Expect    accuracy of about 0.98 on 600 rows; training takes about 20 seconds on 2 CPU cores
"""

from pipeline.config import Config, Data, Optimizer

CONFIG = Config(
    name="digits_csv",
    competition="digits-csv",
    num_classes=10,
    # test.csv has no ids. Its rows are in the order of sample_submission.csv, whose ids are in
    # ImageId.
    data=Data(
        kind="pixels",
        height=8,
        width=8,
        channels=1,
        id_column="ImageId",
        crop_padding=1,
        labelled=1197,
    ),
    model="small_cnn",
    model_options={"width": 32, "dropout": 0.3},
    optimizer=Optimizer(name="adam", base_rate=4e-3, base_batch=128),
    batchnorm_momentum=0.9,
    batchnorm_batch=32,
    batch=128,
    epochs=40,
    warmup_epochs=4,
)
