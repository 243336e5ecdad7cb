"""Outputs: what an artifact's model gives for a test set under the backend of this process. Run as
a program, once a backend.
"""

import sys
from pathlib import Path

import numpy as np


def main(artifact: str, folder: str, target: str) -> None:
    """Write float32 probabilities (n, num_classes) and the backend's name to `target`, an .npz."""
    import keras

    from pipeline import artifact as artifacts
    from pipeline.data.test_set import read_test
    from pipeline.inference import restoring

    loaded = artifacts.load(Path(artifact))
    test = read_test(Path(folder), loaded.config, loaded.encoding)
    found = restoring.averaged(
        loaded, restoring.restore(loaded)[0], test.inputs(np.arange(len(test))), batch=256
    )
    np.savez(
        target,
        outputs=found,
        backend=np.array(keras.backend.backend()),
        keras=np.array(keras.__version__),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
