"""The worked examples of docs/ run as they are: each config by `invoke dry-run`, to a score."""

import pytest

from tests.e2e.project import copied, given

# What a page tells of its example: of orders, either input alone reaches 0.73.
LEAST = {"cells": 0.85, "reviews": 0.9, "digits_csv": 0.97, "orders": 0.85}


@pytest.mark.slow
@pytest.mark.parametrize("config", LEAST)
def test_an_example_learns_what_its_page_is_about(config, tmp_path):
    """Segmentation by Dice, texts, pixels and several inputs by accuracy, on hidden rows."""
    score = given(copied(tmp_path), "invoke", "dry-run", "--config", config)["score"]

    assert score >= LEAST[config]
