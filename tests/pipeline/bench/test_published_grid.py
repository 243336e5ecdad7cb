"""The benchmark of 2018, retold: its ratios to the printed digit, its totals to their rounding."""

from pipeline.bench import published_grid
from pipeline.bench.published_grid import row

ROUNDED = 0.05  # seconds: its columns have one digit behind the point
FOUR_WORKERS = 8  # a pattern
# Its printed totals, h:mm:ss.
COLUMNS = (10, 20, 50, 100, 200, 500, 1000, 2000)  # epochs
TOTALS = """
gpu 64: 3:10:20 6:20:15 15:50:02 31:39:40 63:18:55 158:16:41 316:32:58 633:05:32
gpu 128: 2:22:04 4:43:50 11:49:11 23:38:04 47:15:52 118:09:15 236:18:14 472:36:11
gpu 256: 2:09:58 4:19:20 10:47:29 21:34:23 43:08:11 107:49:34 215:38:34 431:16:32
tpu 64: 2:14:30 4:27:24 11:06:07 22:10:39 44:19:43 110:46:54 221:32:13 443:02:51
tpu 128: 1:10:11 2:18:33 5:43:39 11:25:29 22:49:10 57:00:12 113:58:35 227:55:21
tpu 256: 0:47:12 1:27:15 3:27:23 6:47:35 13:28:01 33:29:19 66:51:29 133:35:48
tpu 512: 0:30:28 0:53:25 2:02:16 3:57:01 7:46:31 19:15:03 38:22:34 76:37:38
tpu 1024: 0:20:55 0:35:02 1:17:23 2:27:57 4:49:07 11:52:36 23:38:24 47:10:00
tpu 2048: 0:13:20 0:24:30 0:57:59 1:53:47 3:45:22 9:20:10 18:38:09 37:14:07
tpu 4096: 0:12:21 0:22:17 0:52:06 1:41:47 3:21:09 8:19:15 16:36:06 33:09:47
"""


def test_its_headlines_come_out_of_its_rows():
    """24.31 and 21.93 against a GPU at its slowest batch; 3.17 and 3.07 at the same batch."""
    slow, fast = row("gpu", 64, 3), row("tpu", 4096, 3)
    equal = row("gpu", 256, 3), row("tpu", 256, 3)

    ratios = [slow.mean / fast.mean, slow.measured / fast.measured]
    ratios += [equal[0].mean / equal[1].mean, equal[0].measured / equal[1].measured]

    assert [f"{ratio:.2f}" for ratio in ratios] == ["24.31", "21.93", "3.17", "3.07"]


def test_each_total_is_the_sum_of_its_epochs():
    """As far as rounding lets it: that of each column, and of the mean for each further epoch."""
    measured = [(one, 20, one.measured) for one in published_grid.rows() + published_grid.fed()]
    printed = []
    for line in TOTALS.strip().splitlines():
        device, batch, *cells = line.replace(":", " ", 1).split()
        for epochs, cell in zip(COLUMNS, cells, strict=True):
            hours, minutes, seconds = map(int, cell.split(":"))
            known = row(device, int(batch), FOUR_WORKERS)
            printed.append((known, epochs, 3600 * hours + 60 * minutes + seconds))

    assert (len(measured), len(printed)) == (80 + 15, 80)
    for one, epochs, total in measured:
        assert abs(one.total(epochs) - total) <= (epochs + 2) * ROUNDED, one
    for one, epochs, total in printed:  # whole seconds
        assert abs(one.total(epochs) - total) <= (epochs + 1) * ROUNDED + 1, (one, epochs)
