"""The benchmark of 2018, by the report's own code: ratios, totals, the law of its epochs."""

from pipeline.bench import comparisons, predictions, timings
from pipeline.bench.published_grid import row
from pipeline.bench.timings import FED, GPU, TPU
from proofs.plan import published_runs
from proofs.shared.results_table import Row

PRINTED = "24.31", "21.93", "3.17", "3.07"
COLUMNS = (10, 20, 50, 100, 200, 500, 1000, 2000)  # epochs
# Its printed totals "pattern 6", h:mm:ss (result.md). They are those of four workers.
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
WORKERS, NEAR, LAW = 8, 0.001, 0.03


def headlines() -> Row:
    """Return the row of its four ratios: epochs and totals, best against worst and at batch 256."""
    rows = {(one.device, one.pattern, one.batch): one for one in timings.published()}
    slow, fast = rows[GPU, 3, 64], rows[TPU, 3, 4096]
    equal = rows[GPU, 3, 256], rows[TPU, 3, 256]
    found = []
    for one, other in ((slow, fast), equal):
        taken = row("gpu", one.batch, 3).measured / row("tpu", other.batch, 3).measured
        found += [one.mean / other.mean, taken]
    told = [f"{ratio:.2f}" for ratio in found]
    compared = comparisons.of(timings.published(), 3)
    ours = max(one.ratio for one in compared if one.what.startswith("an image, each"))
    return Row(
        "The benchmark of 2018: TPU v2-8 at batch 4096 beside a GPU at 64, by epochs and by totals;"
        " both at 256",
        f"{', '.join(PRINTED)} times, to the printed digit",
        f"{', '.join(told)}; an image, each at its best batch: {ours:.2f}",
        tuple(told) == PRINTED,
    )


def totals() -> Row:
    """Return the row of its printed totals, each from two columns of its row: 20 epochs measured,
    and the mean of an epoch.
    """
    errors = {}
    for line in TOTALS.strip().splitlines():
        name, cells = line.split(": ", 1)
        device, batch = name.split()
        known = row(device, int(batch), WORKERS)
        for epochs, cell in zip(COLUMNS, cells.split(), strict=True):
            seconds = _seconds(cell)
            told = known.measured + known.mean * (epochs - 20)
            errors[name, epochs] = told / seconds - 1
    worst = max(errors, key=lambda key: abs(errors[key]))
    return Row(
        "Each of its printed totals, from two columns of its row: 20 epochs and the mean of one",
        f"each of {len(errors)} within {NEAR:.1%}",
        f"worst {errors[worst]:+.3%} ({worst[0]}, {worst[1]} epochs)",
        all(abs(error) <= NEAR for error in errors.values()),
    )


def law() -> Row:
    """Return the row of its epochs at large batches, by the report's prediction."""
    told = [one for one in predictions.by_law(timings.published()) if one.row.device == FED]
    judged = [one for one in told if one.row.feed != "whole" and one.row.batch > 1024]
    errors = [one.predicted.usual / one.row.mean - 1 for one in judged]
    plan = [error for name in published_runs.JUDGED for error in published_runs.errors(name)]
    same = sorted(round(error, 6) for error in errors) == sorted(round(each, 6) for each in plan)
    return Row(
        "Its epochs at batch 2048 and 4096, by the report's law through 256 and 1024",
        f"within {LAW:.0%}, and as `invoke prove plan` has them",
        f"{', '.join(f'{error:+.1%}' for error in errors)}; {'the same' if same else 'others'}",
        same and all(abs(error) <= LAW for error in errors),
    )


def _seconds(text: str) -> int:
    hours, minutes, seconds = map(int, text.split(":"))
    return 3600 * hours + 60 * minutes + seconds
