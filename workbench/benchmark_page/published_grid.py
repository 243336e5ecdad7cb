"""What koshian2/TPU-Benchmark (2018) measured: a TPU v2-8 and an unnamed GPU of Google Colab.

Seconds, from its result.md and result_appendix.md: before training, epoch 1, mean of epochs 2 to
20, their standard deviation, the whole training. Its network has 103 million parameters, its images
are CIFAR-100's.
"""

from dataclasses import dataclass

from workbench.benchmark.cells import FEEDS, PATTERNS
from workbench.benchmark.epochs import total

IMAGES = 50_000
# Device, batch and the first of two patterns, in their order.
GRID = """
gpu 64 1: 7.1 993.6 982.2 2.4 19662.6, 6.6 1039.3 1034.5 3.2 20701.2
gpu 64 3: 0.5 1130.8 1108.4 0.9 22191.7, 4.9 1084.3 1056.5 1.1 21163.1
gpu 64 5: 5.9 1189.9 1171.8 0.6 23460.1, 5.1 1220.9 1204.0 2.5 24101.5
gpu 64 7: 4.7 1063.7 1043.1 0.8 20887.7, 5.2 1158.6 1139.6 0.4 22815.3
gpu 128 1: 7.3 839.6 812.9 3.8 16292.0, 7.4 864.6 854.6 1.5 17108.7
gpu 128 3: 0.6 852.2 821.3 2.6 16457.0, 4.1 819.1 799.7 0.6 16016.7
gpu 128 5: 3.9 835.9 811.7 2.4 16262.5, 4.8 835.8 810.0 2.7 16230.7
gpu 128 7: 2.7 827.5 804.5 0.6 16116.4, 4.5 863.0 850.7 2.1 17030.3
gpu 256 1: 6.3 777.7 759.5 3.9 15213.7, 6.7 806.7 808.7 4.4 16179.4
gpu 256 3: 0.5 769.7 742.9 1.3 14885.0, 4.6 748.1 732.2 0.9 14664.8
gpu 256 5: 5.9 792.8 767.7 1.1 15385.9, 5.5 1244.5 1217.8 57.8 24389.0
gpu 256 7: 3.2 748.7 745.2 9.2 14910.7, 4.3 806.7 776.3 7.2 15560.3
tpu 64 1: 0.1 1052.8 973.0 10.7 19539.0, 0.2 1125.9 982.9 3.4 19800.7
tpu 64 3: 0.8 907.5 844.3 6.9 16950.1, 3.4 930.6 821.5 3.5 16543.4
tpu 64 5: 3.5 902.5 827.2 4.8 16622.9, 3.5 942.9 833.2 4.8 16777.5
tpu 64 7: 2.8 832.7 774.3 5.1 15546.7, 3.5 889.2 797.4 3.6 16044.0
tpu 128 1: 0.1 500.4 396.5 5.8 8033.4, 0.1 547.5 416.7 4.7 8465.5
tpu 128 3: 0.6 507.0 421.7 2.6 8519.8, 3.1 508.0 414.9 2.6 8394.5
tpu 128 5: 3.5 491.9 409.5 1.3 8275.5, 3.5 514.3 409.9 1.5 8306.7
tpu 128 7: 2.8 470.9 406.3 3.8 8193.9, 3.5 515.3 410.2 1.2 8312.7
tpu 256 1: 0.1 325.8 231.1 1.1 4716.6, 0.1 389.7 239.3 1.0 4935.8
tpu 256 3: 0.9 394.3 234.6 1.6 4851.7, 3.5 390.7 233.9 1.1 4838.9
tpu 256 5: 4.5 482.4 239.2 1.1 5031.6, 4.5 542.8 239.1 1.0 5091.0
tpu 256 7: 3.5 511.9 236.4 2.4 5007.9, 4.6 665.2 240.3 1.8 5234.7
tpu 512 1: 0.2 227.7 135.4 1.0 2799.7, 0.2 295.8 141.3 0.8 2980.1
tpu 512 3: 0.4 297.5 136.9 0.8 2898.8, 3.9 313.6 133.9 0.5 2861.2
tpu 512 5: 5.1 410.1 138.7 1.3 3050.3, 4.7 445.1 135.4 0.8 3022.6
tpu 512 7: 3.7 405.7 133.6 0.8 2947.7, 5.1 583.3 137.7 0.6 3204.8
tpu 1024 1: 0.1 177.3 81.7 0.5 1729.2, 0.2 237.4 85.6 0.5 1864.1
tpu 1024 3: 0.4 247.2 80.3 0.2 1773.5, 3.3 237.3 80.2 0.6 1765.1
tpu 1024 5: 4.5 338.4 83.6 0.5 1930.8, 4.4 380.2 84.9 0.8 1998.0
tpu 1024 7: 3.6 340.9 80.7 0.4 1878.3, 4.5 487.9 84.7 0.7 2101.6
tpu 2048 1: 0.1 160.6 62.2 0.7 1343.4, 0.2 219.5 66.2 0.4 1477.2
tpu 2048 3: 0.8 162.2 58.1 0.8 1266.2, 3.5 187.0 57.4 0.4 1281.5
tpu 2048 5: 4.2 169.3 61.4 0.7 1340.3, 4.3 195.4 62.4 1.3 1385.1
tpu 2048 7: 3.2 139.7 59.2 0.5 1267.6, 4.0 193.7 67.0 0.7 1469.9
tpu 4096 1: 0.1 144.3 50.0 0.3 1095.1, 0.2 208.3 53.6 0.2 1226.8
tpu 4096 3: 0.7 145.5 45.6 1.7 1011.8, 3.6 157.4 45.6 1.4 1027.0
tpu 4096 5: 4.4 155.9 49.2 1.5 1094.2, 4.2 178.3 51.4 2.2 1159.0
tpu 4096 7: 3.5 137.4 47.7 1.3 1047.0, 4.6 199.8 59.6 3.0 1337.2
"""
# Pattern 1 with its three feeds; the first of them was measured anew, in another session.
FED = """
tpu 256: 1.3 406.3 219.9 1.5 4586.6, 1.4 324.3 221.0 0.8 4525.4, 0.2 407.7 219.8 0.9 4584.2
tpu 512: 1.5 221.8 131.3 0.4 2717.3, 0.5 190.9 131.6 1.1 2691.6, 0.2 240.7 128.3 0.6 2679.0
tpu 1024: 1.5 233.3 80.1 0.5 1757.4, 0.6 186.6 81.6 0.4 1736.9, 0.2 264.2 79.7 0.5 1778.7
tpu 2048: 1.4 150.0 61.2 0.3 1314.4, 0.5 119.0 60.1 0.3 1261.3, 0.2 166.9 58.2 0.6 1272.6
tpu 4096: 1.6 141.4 50.9 0.2 1110.6, 1.2 97.9 48.7 0.2 1024.5, 0.6 130.5 46.0 1.0 1004.9
"""


@dataclass(frozen=True)
class Published:
    """A row: seconds, as described above.

    Attributes:
        device: "tpu" or "gpu". measured: all 20 epochs.
    """

    device: str
    batch: int
    pattern: int
    feed: str
    before: float
    first: float
    mean: float
    deviation: float
    measured: float

    @property
    def images(self) -> int:
        """Images that an epoch was meant to have: fit's all, the other feeds' whole batches."""
        return IMAGES if self.feed == FEEDS[0] else IMAGES // self.batch * self.batch

    def total(self, epochs: int) -> float:
        """Seconds of a training of so many epochs, by the rule of its author."""
        return total(self.before, self.first, self.mean, epochs)


def rows() -> list[Published]:
    """Return the rows of the eight patterns.

    >>> max(rows(), key=lambda row: row.mean).device
    'gpu'
    """
    found = []
    for line in GRID.strip().splitlines():
        name, cells = line.split(": ")
        device, batch, first = name.split()
        for number, cell in enumerate(cells.split(", "), start=int(first)):
            found.append(_row(device, batch, number, PATTERNS[number].feed, cell))
    return found


def fed() -> list[Published]:
    """Return the rows of pattern 1 with three feeds."""
    found = []
    for line in FED.strip().splitlines():
        name, cells = line.split(": ")
        device, batch = name.split()
        for feed, cell in zip(FEEDS, cells.split(", "), strict=True):
            found.append(_row(device, batch, 1, feed, cell))
    return found


def row(device: str, batch: int, pattern: int) -> Published:
    """Return a row of the eight patterns."""
    wanted = device, batch, pattern
    return next(one for one in rows() if (one.device, one.batch, one.pattern) == wanted)


def _row(device: str, batch: str, pattern: int, feed: str, cell: str) -> Published:
    return Published(device, int(batch), pattern, feed, *map(float, cell.split()))
