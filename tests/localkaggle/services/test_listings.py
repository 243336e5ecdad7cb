"""Listings: what the client finds of kernels, datasets and competitions, and what it deletes."""

from dataclasses import replace

import kagglesdk.competitions.types.competition_api_service as competition_types
import kagglesdk.datasets.types.dataset_api_service as dataset_types
import kagglesdk.kernels.types.kernels_api_service as kernel_types
import pytest
from kagglesdk.competitions.types.competition_enums import HostSegment
from kagglesdk.datasets.types.dataset_enums import (
    DatasetFileTypeGroup,
    DatasetLicenseGroup,
    DatasetSelectionGroup,
)
from kagglesdk.datasets.types.dataset_types import DatasetSettings, SettingsLicense
from kagglesdk.kernels.types.kernels_enums import (
    KernelExecutionType,
    KernelsListSortType,
    KernelsListViewType,
)

from localkaggle.competitions import Competition
from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import make
from tests.localkaggle.pushed_notebooks import notebook, refused, save
from tests.localkaggle.services.test_datasets import HANDLE, add, ask, create, names, upload

FOR_EVER = 3600.0
MINE, EVERYONE = KernelsListViewType.PROFILE, KernelsListViewType.EVERYONE


@pytest.fixture
def kaggle(start) -> LocalKaggle:
    """Return a local Kaggle whose pushes stay queued and whose datasets are ready at once."""
    files = {"sample_submission.csv": b"id,label\n"}
    small = Competition("small", "Small", {}, files, files, {}, score=lambda given, solution: 1.0)
    return start(competitions=(small,), queue_seconds=FOR_EVER, ready_seconds=0)


def kept(client, slug: str, **fields):
    """Push a version that is only kept, not run."""
    quick = KernelExecutionType.QUICK_SAVE
    return save(client, notebook("1"), slug, kernel_execution_type=quick, **fields)


def kernels(client, group=EVERYONE, **fields):
    request = make(kernel_types.ApiListKernelsRequest, group=group, **fields)
    return client.kernels.kernels_api_client.list_kernels(request)


def slugs(client, group=EVERYONE, **fields) -> list[str]:
    return [kernel.slug for kernel in kernels(client, group, **fields).kernels]


def delete_kernel(client, owner: str = "rehearsal"):
    request = make(kernel_types.ApiDeleteKernelRequest, user_name=owner, kernel_slug="small-kernel")
    return client.kernels.kernels_api_client.delete_kernel(request)


def datasets(client, **fields) -> list[str]:
    request = make(dataset_types.ApiListDatasetsRequest, **fields)
    answer = client.datasets.dataset_api_client.list_datasets(request)
    return [dataset.ref for dataset in answer.datasets]


# Kernels


def test_a_private_kernel_is_listed_to_its_owner_alone(kaggle, client):
    """Who asks for all kernels gets the public ones."""
    connected = client(kaggle)
    kept(connected, "of-mine")
    kept(connected, "of-all", is_private=False)
    kaggle.kernels.kernels["stranger/of-his"] = replace(
        kaggle.kernels.kernels["rehearsal/of-mine"], owner="stranger", slug="of-his"
    )

    assert slugs(connected) == ["of-all"]
    assert slugs(connected, MINE) == slugs(connected, user="rehearsal") == ["of-all", "of-mine"]
    assert slugs(connected, user="stranger") == []


def test_kernels_are_listed_by_what_they_are_and_read(kaggle, client):
    """Kind, words of the title, and the competition that they mount."""
    connected = client(kaggle)
    kept(connected, "one-kernel", competition_data_sources=["small"])
    kept(connected, "two-kernel", kernel_type="script")

    assert slugs(connected, MINE, kernel_type="script") == ["two-kernel"]
    assert slugs(connected, MINE, search="One K") == ["one-kernel"]
    assert slugs(connected, MINE, competition="small") == ["one-kernel"]
    assert slugs(connected, MINE, language="r") == []


def test_a_list_goes_on_by_its_token_or_by_the_number_of_the_page(kaggle, client):
    """Both lead to the same kernels."""
    connected = client(kaggle)
    for name in ("kernel-a", "kernel-b", "kernel-c"):
        kept(connected, name)

    first = kernels(connected, MINE, page_size=2)
    by_token = slugs(connected, MINE, page_size=2, page_token=first.next_page_token)

    assert [kernel.slug for kernel in first.kernels] == ["kernel-c", "kernel-b"]
    assert by_token == slugs(connected, MINE, page_size=2, page=2) == ["kernel-a"]


def test_kernels_can_be_listed_by_their_last_run(kaggle, client):
    """The one that was made last is first otherwise."""
    connected = client(kaggle)
    for name in ("kernel-a", "kernel-b", "kernel-a"):
        kept(connected, name)

    assert slugs(connected, MINE) == ["kernel-b", "kernel-a"]
    assert slugs(connected, MINE, sort_by=KernelsListSortType.DATE_RUN) == ["kernel-a", "kernel-b"]


def test_a_deleted_kernel_ends_and_its_name_is_free(kaggle, client):
    """What is pushed under that name is another kernel, whose versions begin at 1."""
    connected = client(kaggle)
    before = save(connected, notebook("1"))
    session = kaggle.kernels.kernels["rehearsal/small-kernel"].versions[0].session

    delete_kernel(connected)

    assert session._cancelled.is_set() and slugs(connected, MINE) == []
    after = save(connected, notebook("1"))
    assert (after.version_number, after.error) == (1, "") and after.kernel_id != before.kernel_id


def test_nobody_deletes_what_is_not_there_or_not_his(kaggle, client):
    """The site does not say which of the two it is."""
    connected = client(kaggle)
    save(connected, notebook("1"))
    mine = kaggle.kernels.kernels.pop("rehearsal/small-kernel")
    kaggle.kernels.kernels["stranger/small-kernel"] = replace(mine, owner="stranger")

    for owner in ("rehearsal", "stranger"):
        with refused(403, "kernels.delete"):
            delete_kernel(connected, owner)
        with refused(403, "datasets.delete"):
            ask(connected, "delete_dataset", owner)
    assert list(kaggle.kernels.kernels) == ["stranger/small-kernel"]


# Datasets


def test_datasets_are_listed_by_licence_file_type_and_size(kaggle, client):
    """The type of a file is its ending."""
    connected = client(kaggle)
    for slug, name, license_name in (("one-data", "a.csv", "CC0-1.0"), ("two-data", "a.json", "")):
        token = upload(connected, name, b"12345")
        create(connected, token, slug=slug, license_name=license_name, is_private=False)
    one, two = "rehearsal/one-data", "rehearsal/two-data"

    assert datasets(connected) == [two, one]
    assert datasets(connected, license=DatasetLicenseGroup.DATASET_LICENSE_GROUP_CC) == [one]
    assert datasets(connected, license=DatasetLicenseGroup.DATASET_LICENSE_GROUP_OTHER) == [two]
    json_files = DatasetFileTypeGroup.DATASET_FILE_TYPE_GROUP_JSON
    assert datasets(connected, file_type=json_files) == [two]
    assert datasets(connected, min_size=6) == [] and datasets(connected, max_size=5) == [two, one]


def test_a_private_dataset_is_listed_to_its_owner_alone(kaggle, client):
    """As his own, or under his name."""
    connected = client(kaggle)
    create(connected, upload(connected, "a.csv", b"1"))

    assert datasets(connected) == []
    mine = DatasetSelectionGroup.DATASET_SELECTION_GROUP_MY
    assert datasets(connected, group=mine) == datasets(connected, user="rehearsal") == [HANDLE]


def test_a_deleted_dataset_can_be_made_again_with_other_files(kaggle, client):
    """It has none of the old files, and a number of its own."""
    connected = client(kaggle)
    create(connected, upload(connected, "old.txt", b"1"))
    add(connected, upload(connected, "old.txt", b"2"))
    before = ask(connected, "get_dataset")

    ask(connected, "delete_dataset")
    with refused(404):
        ask(connected, "get_dataset_status")
    create(connected, upload(connected, "new.txt", b"3"))

    after = ask(connected, "get_dataset")
    assert names(connected) == ["new.txt"] and after.current_version_number == 1
    assert after.id != before.id


def test_metadata_that_were_updated_are_read_back(kaggle, client):
    """What the update leaves out is empty; a title that is too short changes nothing."""
    connected = client(kaggle)
    create(connected, upload(connected, "a.csv", b"1"), description="old", category_ids=["tabular"])
    settings = make(
        DatasetSettings,
        title="Better title",
        subtitle="A subtitle of thirty letters",
        licenses=[make(SettingsLicense, name="CC0-1.0")],
        is_private=True,
    )

    said = ask(connected, "update_dataset_metadata", settings=settings).errors
    info = ask(connected, "get_dataset_metadata").info

    assert said == [] and (info.title, info.subtitle) == (settings.title, settings.subtitle)
    assert (info.licenses[0].name, info.is_private, info.keywords) == ("CC0-1.0", True, [])
    wrong = make(DatasetSettings, title="short")
    assert "between 6 and 50" in ask(connected, "update_dataset_metadata", settings=wrong).errors[0]
    assert ask(connected, "get_dataset").title == "Better title"


def test_a_version_can_be_added_by_the_number_of_the_dataset(kaggle, client):
    """The client does so where the metadata have `id_no`."""
    connected = client(kaggle)
    create(connected, upload(connected, "a.csv", b"1"))
    files = [make(dataset_types.ApiDatasetNewFile, token=upload(connected, "b.csv", b"2"))]
    body = make(dataset_types.ApiCreateDatasetVersionRequestBody, files=files)
    number = ask(connected, "get_dataset").id
    request = make(dataset_types.ApiCreateDatasetVersionByIdRequest, id=number, body=body)

    connected.datasets.dataset_api_client.create_dataset_version_by_id(request)

    assert names(connected) == ["b.csv"] and names(connected, 1) == ["a.csv"]


# Competitions


def test_the_competitions_that_are_hosted_are_listed(kaggle, client):
    """All of them are for practice: no other category has one."""

    def listed(**fields) -> list[str]:
        request = make(competition_types.ApiListCompetitionsRequest, **fields)
        answer = client(kaggle).competitions.competition_api_client.list_competitions(request)
        return [competition.title for competition in answer.competitions]

    assert listed() == listed(search="mal") == ["Small"]
    assert listed(search="large") == listed(category=HostSegment.HOST_SEGMENT_FEATURED) == []
