"""Competition folders as people have them: TFRecords, folders in folders, archives, broken files."""

import os
import subprocess
import sys

from tests.pipeline.data.test_tfrecords import ROOT
from tests.pipeline.inspection.test_records import records


def test_tfrecords_are_inspected_with_keras_on_jax(tmp_path):
    """TensorFlow, which reads them, imports Keras, whose backend is chosen before that."""
    code = (
        "from pipeline.__main__ import main\n"
        f"print(main(['inspect', {str(records(tmp_path))!r}]))\n"
        "import keras\n"
        "print(keras.backend.backend())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"},
    )

    assert done.stdout.splitlines()[-2:] == ["0", "jax"], done.stdout + done.stderr
