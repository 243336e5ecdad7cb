"""The worked examples of docs/ run as they are: each config by `invoke dry-run`, to a score."""

import pytest

from tests.e2e.project import copied, given

pytestmark = pytest.mark.slow
MODEL = '    x = inputs["image"]\n'
JOINED = '    x = layers.Concatenate(name="joined")([x, inputs["numbers"]])\n'
PARTS = {"image": "np.stack(pictures)[..., None]", "numbers": "numbers.to_numpy(np.float32)"}
FORMS = {"image": '("uint8", 8, 8, 1)', "numbers": '("float32", len(COLUMNS))'}


def score(project, config):
    return given(project, "invoke", "dry-run", "--config", config)["score"]


@pytest.mark.parametrize(
    ("config", "least"), [("cells", 0.85), ("reviews", 0.9), ("digits_csv", 0.97)]
)
def test_an_example_learns_what_its_page_is_about(config, least, tmp_path):
    """Segmentation by Dice, texts and pixels by accuracy, all on the hidden test set."""
    assert score(copied(tmp_path), config) >= least


def alone(text, name):
    """Return the file of orders.py with one of its two inputs."""

    def literal(values):
        return "{" + ", ".join(f'"{each}": {value}' for each, value in values.items()) + "}"

    before, rest = text.split(MODEL)
    network, after = rest.split(JOINED)
    text = before + "    x = inputs\n" + (network if name == "image" else "") + after
    for values in (PARTS, FORMS):
        assert text.count(literal(values)) == 1
        text = text.replace(literal(values), literal({name: values[name]}))
    return text.replace('name="orders"', f'name="orders_{name}"')


def test_several_inputs_score_above_the_better_one_of_them_alone(tmp_path):
    project = copied(tmp_path)
    folder = project / "pipeline/configs"
    for name in PARTS:
        text = alone((folder / "orders.py").read_text(), name)
        (folder / f"orders_{name}.py").write_text(text)

    both, *each = (score(project, name) for name in ("orders", "orders_image", "orders_numbers"))

    assert both > max(each)
