"""The page of benchmarks keeps all repetitions, and a script replaces its section as a whole."""

import time

from benchmarks import measure
from benchmarks.measure import Table


def test_a_ratio_above_one_says_that_ours_is_faster():
    faster = Table("Rows", "rows/s", {"ours": [200, 300], "theirs": [100, 100]})
    slower = Table("Start", "s", {"ours": [2, 3], "theirs": [1, 1]})

    assert "| theirs | 100 | 2.50 (2.00 to 3.00) | 100 100 |" in faster.lines()
    assert "| theirs | 1 | 0.42 (0.33 to 0.50) | 1 1 |" in slower.lines()


def test_each_turn_begins_with_another_variant_and_the_first_does_not_count():
    order: list[str] = []

    def variant(name: str) -> float:
        order.append(name)
        return len(order)

    taken = measure.in_turn({name: lambda name=name: variant(name) for name in "ab"}, 2)

    assert order == list("abbaab")
    assert taken == {"a": [4, 5], "b": [3, 6]}


def test_a_script_replaces_its_own_section_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "PAGE", tmp_path / "benchmarks.md")
    for name, value in (("loop", 1), ("feed", 2), ("loop", 3)):
        table = Table(f"Of {name}", "ms", {"ours": [value]})
        measure.write(name, f"Section {name}", [table], time.perf_counter())

    page = measure.PAGE.read_text()
    assert page.startswith(measure.HEAD)
    assert page.index("## Section feed") < page.index("## Section loop")
    assert "| ours | 3 |" in page and "| ours | 1 |" not in page and page.count("## ") == 2
