"""A report shows what the files of a run contain, and shows it only as text."""

import base64
import json
import re
import shutil
from contextlib import suppress
from functools import partial
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invoke.main import program
from PIL import Image

from deploy import secrets
from formats import checksums, npz
from pipeline.errors import ConfigError, PipelineError, ReportError
from pipeline.evaluate import held_out_rows
from tests.pipeline.handmade import AWKWARD, NAMES, manifest, progress, run, validation
from workbench import __main__ as command_line
from workbench.plan.laws import Interval
from workbench.plan.operation_counts import Counts
from workbench.plan.outlook import Outlook
from workbench.plan.plan import Inference, Plan
from workbench.report import report, sections

ROOT = Path(__file__).resolve().parents[3]
DIFFERENCE = "predicted minus true"


class Page(HTMLParser):
    """A page as a browser parses it: elements with attributes, texts, and the texts in <bdi>."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.quoted: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        """Note an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in {"img", "meta", "br"}:
            self._open.append(tag)

    def handle_endtag(self, tag):
        """Refuse an end tag that does not match the last start tag."""
        assert self._open.pop() == tag

    def handle_data(self, data):
        """Note a text outside the style."""
        if self._open and self._open[-1] != "style":
            self.texts.append(data)
            self.quoted += [data] if self._open[-1] == "bdi" else []

    def all(self, tag):
        """Return the attributes of all elements of this name."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        """The page's text, with single blanks."""
        return " ".join(" ".join(self.texts).split())


def test_the_page_is_self_contained(tmp_path):
    """It fetches and runs nothing."""
    run(tmp_path)
    pixels = np.zeros((4, 8, 8, 1), np.uint8)
    held_out_rows.keep_examples(tmp_path, np.arange(4), pixels)
    path = report.write(tmp_path)
    text, shown = path.read_text(encoding="utf-8"), Page(path)

    assert not re.search(r"(src|href)=.(?!data:|#)|@import|url\((?!#)", text)
    assert not shown.all("script") and not shown.all("link")
    sources = [image["src"] for image in shown.all("img")]
    assert len(sources) == 4 and all(each.startswith("data:image/png;") for each in sources)


def test_each_of_the_worst_rows_has_its_own_picture_id_and_loss(tmp_path):
    """The loss is that of the label's probability, not of the prediction's."""
    run(tmp_path)
    table = pd.read_csv(tmp_path / "validation.csv")
    wrong = int(np.flatnonzero(table["label"] != table["prediction"])[0])
    rows = np.array([wrong, 3])
    pixels = np.full((2, 8, 8, 1), 50, np.uint8)
    pixels[1] = 200
    held_out_rows.keep_examples(tmp_path, rows, pixels)
    shares = np.load(tmp_path / "validation.npz")["probabilities"]

    shown = Page(report.write(tmp_path))

    contents = [base64.b64decode(image["src"].partition(",")[2]) for image in shown.all("img")]
    assert [np.asarray(Image.open(BytesIO(each))).mean() for each in contents] == [50, 200]
    losses = [-np.log(shares[row, NAMES.index(table["label"][row])]) for row in rows]
    for row, loss in zip(rows, losses, strict=True):
        assert f"loss {sections.number(loss, 3)} {table['id'][row]}" in shown.text


def test_a_prediction_that_is_too_high_has_a_residual_above_zero(tmp_path):
    run(tmp_path, target="regression")
    table = pd.read_csv(tmp_path / "validation.csv")
    table["prediction"] = table["label"] + np.arange(5, 5 + len(table))
    table.to_csv(tmp_path / "validation.csv", index=False)

    page = report.write(tmp_path).read_text()

    drawn = page[page.index("Residuals") :].partition("</svg>")[0]
    texts = re.findall(r"<text[^>]*>([^<]*)<", drawn)
    ticks = [float(text.replace("\u2212", "-")) for text in texts[: texts.index(DIFFERENCE)]]
    assert min(ticks) >= 0 and max(ticks) >= 5


def harmless(shown: Page) -> bool:
    """Return whether a page has only elements and attributes that we write."""
    names = {name for name, _ in shown.elements}
    attributes = {key for _, given in shown.elements for key in given}
    links = [given["href"] or "" for _, given in shown.elements if "href" in given]
    return (
        not names & {"script", "iframe", "object", "embed", "form", "base", "link", "b"}
        and not [key for key in attributes if key.startswith("on")]
        and all(link.startswith("#") for link in links)
        and len(shown.all("style")) == len(shown.all("title")) == 1
    )


def test_no_text_of_a_run_becomes_markup(tmp_path):
    """Labels, ids and names appear letter for letter, without any additional element."""
    plain, odd = tmp_path / "plain", tmp_path / "odd"
    names = [f"{number} {'x' * (len(text) - 2)}" for number, text in enumerate(AWKWARD)]
    run(plain, names=names, rows=70)
    run(odd, names=AWKWARD, rows=70, name="<b>\ud800", devices="</dd>", versions={"<i>": "</td>"})
    text = (odd / "validation.csv").read_text()
    (odd / "validation.csv").write_text(text.replace("r003", "<img src=x onerror=alert(1)>"))

    expected = Page(report.write(plain))
    shown = Page(report.write(odd, title="<script>\u202e</title>"))

    assert harmless(shown)
    assert [name for name, _ in shown.elements] == [name for name, _ in expected.elements]
    quoted = {"<script>\u202e</title>", "</dd>", "<i>", "</td>"}
    assert quoted.union(AWKWARD[:3]) <= set(shown.quoted)
    assert max(map(len, shown.quoted)) <= 80
    title = shown.texts[0]
    assert title.startswith("<script>\u202e</title> ·")
    outside = [text for text in shown.texts[1:] if text not in shown.quoted]
    assert not [text for text in outside if "\u202e" in text]


def with_folds(folder):
    folds = [{"steps": 60, "metrics": {"validation_accuracy": share}} for share in (0.25, 0.75)]
    run(folder, folds=folds)
    for number in (1, 2):
        progress(folder / f"fold-{number}", epochs=4 + number)
    table = pd.read_csv(folder / "validation.csv")
    table.assign(fold=1 + np.arange(len(table)) % 2).to_csv(folder / "validation.csv", index=False)


def partial_run(folder):
    """A kill interrupted the last line of each file; they are not corrupt."""
    progress(folder)
    for name in ("history.csv", "progress.jsonl"):
        with (folder / name).open("a") as file:
            file.write('{"step": 7')


def begun(folder):
    """The run's name is in its first checkpoint; a later one is corrupt."""
    config = {"name": "tiny", "competition": "insects"}
    origin = {"config": config, "devices": "8 x tpu", "precision": "float32"}
    whole = checksums.sealed({"details": {"run_id": "tiny-1", "origin": origin}})
    for step, content in ((2, whole), (3, b"corrupt")):
        checkpoint = folder / "checkpoints" / f"step-{step:08d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "manifest.json").write_bytes(content)


def pulled_artifact(folder):
    scores = {"validation_accuracy": 0.75, "validation_loss": 0.5, "validation_qwk": 0.875}
    manifest(folder, metric="qwk", metrics=scores)
    validation(folder, "classes", ("ant", "bee", "cat"), 9)
    (folder / "validation.csv").unlink()


def with_submission(folder):
    (run(folder) / "submission.csv").write_text("id,label\n1,ant\n2,bee\n")


def without(name):
    return lambda folder: (run(folder) / name).unlink()


def many_classes(folder):
    run(folder, names=[f"species {number:03d}" for number in range(130)], rows=400)


def of_another_baseline(folder):
    baseline = {"metric": "rmse", "score": 0.5}
    run(folder, metric="accuracy", config={"name": "tiny", "baseline": baseline}, baseline=None)


def test_the_page_of_a_linear_model_lacks_nothing(tmp_path):
    config = {"name": "tiny", "fit": "linear", "epochs": 6, "batch": 16}
    folds = [{"steps": 0, "validation_rows": 9, "metrics": {}}] * 2
    run(tmp_path, config=config, applied={"strength": 0.1}, folds=folds)
    for name in ("history.csv", "progress.jsonl"):
        (tmp_path / name).unlink()

    text = Page(report.write(tmp_path)).text

    assert "no epochs and no learning rate" in text and "Applied settings strength 0.1" in text
    wrong = ("Missing from this page", "as applied", "Curves", " steps", "batch 16", "Warnings")
    assert [words for words in wrong if words in text] == []


@pytest.mark.parametrize(
    ("made", "facts"),
    [
        (
            partial(run, target="regression"),
            ["root mean squared error on validation rows", "Residuals"],
        ),
        (
            partial(run, target="multilabel"),
            ["mean F1 of the labels on validation rows 95 % interval", "Calibration"],
        ),
        (with_folds, ["out of fold, 2 folds", "epochs 5, 6 of 6, 2 folds", "0.2500", "0.7500"]),
        (many_classes, ["The 100 of 130 classes with the lowest F1", "Most frequent confusions"]),
        (
            partial_run,
            [
                "0.9000 accuracy on validation rows after epoch 6 not final",
                "Not available, because valid",
            ],
        ),
        (begun, ["The first epoch has not finished yet.", "tiny", "insects", "tiny-1", "8 x tpu"]),
        (pulled_artifact, ["0.8750 validation_qwk"]),
        # The competition's metric comes first, then the one with an interval.
        (
            lambda folder: run(folder, metric="mine", metrics={"validation_mine": 0.28}),
            ["0.2800 mine on validation rows accuracy 0."],
        ),
        (without("progress.jsonl"), ["progress.jsonl : throughput"]),
        (without("validation.csv"), ["validation.csv : all details about classes"]),
        (without("validation.npz"), ["validation.npz : the exact loss"]),
        # Files of two runs in one folder are a common mistake.
        (
            lambda folder: run(folder, metrics={"validation_accuracy": 0.5}),
            ["so validation.csv must be from a different run"],
        ),
        (with_submission, ["2 rows, sha256 "]),
        (of_another_baseline, ["The baseline uses rmse and the run uses accuracy"]),
    ],
)
def test_a_page_shows_the_run_and_what_is_missing(tmp_path, made, facts):
    made(tmp_path)

    shown = Page(report.write(tmp_path))

    assert [fact for fact in facts if fact not in shown.text] == []
    assert made != many_classes or "matrix" not in str(shown.all("table"))


MANIFEST = "artifact/manifest.json"
ROWS = b"id,label,prediction,confidence\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (MANIFEST, b"[" * 100_000, "not a valid manifest"),
        (MANIFEST, {"seconds": {"total": "long"}}, "contains invalid values"),
        (MANIFEST, {"classes": 3}, "'int' object is not iterable"),
        (
            MANIFEST,
            {"target": {"kind": "regression"}},
            "expected the columns for target regression",
        ),
        (MANIFEST, {"classes": ["dog"]}, "expected one of the manifest's classes"),
        ("history.csv", b"\xff\xfe\n", "is not a valid file of a training run"),
        ("history.csv", b"epoch,loss\n1,2\n", "validation_loss"),
        ("progress.jsonl", b"null\n", "step or images_per_second is missing from a line"),
        ("validation.csv", ROWS + b"1,ant,bee,\n", "column confidence: '' is not a number"),
        ("validation.csv", ROWS, "has no rows"),
        ("validation.npz", b"PK", "is not a valid file for validation.csv"),
        *(
            ("examples.npz", content, "is not a valid file for validation.csv")
            for content in (
                npz.to_bytes({"indices": np.array([0, 10**6])}),
                npz.to_bytes({"indices": np.arange(1), "pixels": np.zeros((2, 8, 8, 1), "uint8")}),
            )
        ),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(tmp_path, name, content, said):
    """A page that silently left it out would seem complete."""
    run(tmp_path)
    broken = content if isinstance(content, bytes) else checksums.sealed(content)
    (tmp_path / name).write_bytes(broken)

    with pytest.raises(ReportError) as caught:
        report.write(tmp_path)

    assert said in str(caught.value) and "pull the run again" in str(caught.value).lower()
    assert not (tmp_path / "report.html").exists()


@given(st.data())
@settings(max_examples=8)
def test_any_file_gives_a_page_or_a_message(tmp_path, data):
    """Truncated, or with changed bytes."""
    output = tmp_path / "run"
    shutil.rmtree(output, ignore_errors=True)
    run(output, data.draw(st.sampled_from(["classes", "regression", "multilabel"])), rows=12)
    names = ["history.csv", "progress.jsonl", "validation.csv", MANIFEST]
    name = data.draw(st.sampled_from(names))
    content = (output / name).read_bytes()
    start = data.draw(st.integers(0, len(content)))
    odd = st.sampled_from([b"9" * 400, b"-", b",", b'"', b"e999", b"nan", b"inf"])
    more = data.draw(st.binary(max_size=4) | odd)
    end = start + data.draw(st.sampled_from([0, len(more), 10**6]))
    changed = content[:start] + more + content[end:]
    if name.endswith(".json"):
        with suppress(ValueError, AttributeError):  # else its seal does not fit
            changed = checksums.sealed(json.loads(changed))
    (output / name).write_bytes(changed)

    try:
        assert harmless(Page(report.write(output)))
    except PipelineError as error:
        assert str(output) in str(error)


@pytest.mark.parametrize(("runtime", "shown"), [("cpu", True), ("tpu-v5e-8", False)])
def test_a_run_is_compared_with_its_plan_for_the_same_machine(tmp_path, runtime, shown):
    run(tmp_path, devices="2 x cpu (cpu)", seconds={"total": 150.0})
    one = Outlook(
        runtime, "a machine", "", 64, "float32", 1e9, step=Interval(0.032, 0.032, 0.032),
        total=Interval(120.0, 120.0, 120.0), time_basis="measured",
    )  # fmt: skip
    sizes, infers = (Counts(1, 1, 1.0), 1.0), Inference(None, None, None, None)
    made = Plan("ants", 64, 3, 1, 10, 9, "counted", *sizes, 1.0, "", (one,), infers, "Go.")
    path = tmp_path / "plan.json" if shown else tmp_path.with_name(f"{tmp_path.name}-plan.json")
    path.write_text(json.dumps(made.to_json()))

    page = Page(report.write(tmp_path))

    assert "ants: batch 64, 3 epochs, 9 training images" in page.text
    assert (
        "compared with the plan planned measured training 2 min, measured 2 min" in page.text
    ) is shown
    assert ("images per second 2,000" in page.text) is shown


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="has no files of a training run"):
        report.write(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder"):
        report.write(tmp_path / "nowhere")


def test_a_broken_plan_is_named(tmp_path):
    run(tmp_path)
    (tmp_path / "plan.json").write_bytes(b"{}")

    with pytest.raises(ReportError, match=r"plan.json is not a plan: (.|\n)*remove the file"):
        report.write(tmp_path)


def test_the_command_prints_the_path_or_json(tmp_path, capsys):
    run(tmp_path)
    path = str(tmp_path / "report.html")

    words = ([str(tmp_path)], [str(tmp_path), "--json"], [str(tmp_path / "no"), "--json"])
    codes = [command_line.main(["report", "--output", *more]) for more in words]
    printed = capsys.readouterr().out.splitlines()

    assert codes == [0, 0, 2]
    assert (printed[0], json.loads(printed[1])) == (path, {"report": path})
    assert json.loads(printed[2])["exit_code"] == 2


def test_the_task_leaves_a_pulled_folder_as_it_is(tmp_path, monkeypatch, capsys):
    """The next pull compares it with what the run wrote; the page goes beside it."""
    output = run(tmp_path / "insects-train-tpu-v3")
    pulled = {"run": "ann/insects-train-tpu/3", "server": "s", "at": "a"}
    (output / ".pulled.json").write_text(json.dumps(pulled))
    before = sorted(output.rglob("*"))

    monkeypatch.setattr(secrets, "guard_tracebacks", lambda: None)  # those of this process
    command = ["invoke", "--search-root", str(ROOT), "report", "--run", str(output), "--json"]
    program.run(command, exit=False)

    printed = capsys.readouterr().out
    result = json.loads(printed.splitlines()[-1])
    assert result["report"] == str(tmp_path / "insects-train-tpu-v3-report.html")
    assert Path(result["report"]).is_file() and sorted(output.rglob("*")) == before
    assert f"Using the training run in {output}" in printed
