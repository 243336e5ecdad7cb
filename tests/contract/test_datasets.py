"""The contract of our client's calls about datasets."""

import pytest
import requests

from deploy import calls
from deploy.errors import Refused

pytestmark = pytest.mark.fact(
    "A dataset version is current once it is READY, with exactly the files that were sent"
)


@pytest.fixture(scope="module")
def data(site, tmp_path_factory) -> str:
    """The address of a dataset of two versions."""
    handle = site.name("data")
    folder = tmp_path_factory.mktemp("data")
    assert site.publish(handle, folder, **{"a.txt": b"first a", "b.bin": bytes(range(256))}) == 1
    assert site.publish(handle, folder, **{"a.txt": b"second"}) == 2
    return handle


def test_each_version_has_the_files_that_were_sent_for_it(site, data, tmp_path):
    assert site.kaggle.dataset_files(data, 2) == {"a.txt": 6}
    assert site.kaggle.dataset_files(data, 1) == {"a.txt": 7, "b.bin": 256}
    for version, name, content in (
        (1, "a.txt", b"first a"),
        (1, "b.bin", bytes(range(256))),
        (2, "a.txt", b"second"),
    ):
        path = tmp_path / f"{version}{name}"
        site.kaggle.download_dataset_file(data, version, name, path)
        assert path.read_bytes() == content


def test_a_dataset_says_its_version(site, data):
    dataset = site.kaggle.dataset(data)

    assert (dataset.version, dataset.is_private) == (2, True)


def test_an_own_dataset_is_listed(site, data):
    assert data in [one.handle for one in site.kaggle.own_datasets()]


@pytest.mark.fact("Kaggle also returns 403 if something does not exist")
def test_what_does_not_exist_is_absent(site, data):
    assert site.kaggle.dataset(site.name("missing")) is None
    with pytest.raises(Refused):
        site.kaggle.dataset_files(data, 9)


@pytest.mark.fact("A dataset's title has 6 to 50 characters, and its address is unique")
@pytest.mark.parametrize(("is_new", "title"), [(False, "Another title"), (True, "short")])
def test_a_dataset_that_cannot_be_made_is_refused_inside_a_success(
    site, data, is_new, title, tmp_path
):
    (tmp_path / "a.txt").write_bytes(b"a")
    token, handle = site.kaggle.upload(tmp_path / "a.txt"), site.name("new") if is_new else data

    with pytest.raises(Refused):
        site.kaggle.create_dataset(handle, title=title, description="", tokens=[token])

    assert site.version(handle) == (0 if is_new else 2)


def test_a_deleted_dataset_is_gone(site, tmp_path):
    handle = site.name("deleted")
    site.publish(handle, tmp_path, **{"a.txt": b"a"})

    site.kaggle.delete_dataset(handle)

    assert site.kaggle.dataset(handle) is None
    assert handle not in [one.handle for one in site.kaggle.own_datasets()]


@pytest.mark.fact("The storage returns 308 for a partial upload, reports in Range how much it has")
def test_an_interrupted_upload_is_resumed(site):
    size = 2 * 256 * 1024  # the storage keeps whole pieces of 256 KiB
    content = bytes(size)
    about = {"type": "DATASET", "name": "a.bin", "content_length": size}
    url = site.kaggle._read("begin an upload", calls.START_UPLOAD, about).create_url

    def put(body: bytes, content_range: str) -> tuple[int, str | None]:
        answer = requests.put(url, body, headers={"Content-Range": content_range}, timeout=60)
        return answer.status_code, answer.headers.get("Range")

    half = size // 2
    assert put(b"", f"bytes */{size}") == (308, None)
    assert put(content[:half], f"bytes 0-{half - 1}/{size}") == (308, f"bytes=0-{half - 1}")
    assert put(b"", f"bytes */{size}") == (308, f"bytes=0-{half - 1}")
    assert put(content[half:], f"bytes {half}-{size - 1}/{size}")[0] == 200
