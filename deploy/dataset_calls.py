"""Calls about datasets: upload files, make a version of them, read it back."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deploy import failure_messages, responses
from deploy.errors import Refused
from deploy.responses import Dataset, Malformed, split
from deploy.retries import Exchange


class DatasetCalls(Exchange):
    """What Kaggle is asked about datasets."""

    _blobs: Any
    _blobs_types: Any
    _datasets: Any
    _datasets_types: Any

    def dataset(self, handle: str) -> Dataset | None:
        """Return what Kaggle knows of our dataset, or None if it does not exist.

        Raises:
            Unknown: if Kaggle does not tell.
        """
        request = self._about_dataset("GetDataset", handle)

        def ask() -> Dataset:
            answer = self._datasets.get_dataset(request)
            notes = {
                responses.number(v.version_number): responses.text(v.version_notes)
                for v in answer.versions or ()
            }
            version = responses.number(answer.current_version_number)
            return Dataset(version, answer.is_private is True, notes)

        return self._mine("dataset", handle, f"look at the dataset {handle}", ask, self._own)

    def _own(self) -> Iterator[str]:
        """Yield the handles of all our datasets."""
        request = self._datasets_types.ApiListDatasetsRequest()
        group = self._datasets_types.DatasetSelectionGroup
        request.group = group.DATASET_SELECTION_GROUP_MY
        pages = self._pages("list your datasets", request, 100, self._datasets.list_datasets)
        for page in pages:
            yield from (dataset.ref for dataset in page.datasets or () if dataset and dataset.ref)

    def dataset_status(self, handle: str) -> str:
        """Return the state of the current version, READY at the end; UNKNOWN(word) if unknown."""
        request = self._about_dataset("GetDatasetStatus", handle)

        def ask() -> str:
            try:
                return responses.word(self._datasets.get_dataset_status(request).status)
            except Malformed as error:
                return responses.unknown_word(error)

        return self._read(f"ask for the status of the dataset {handle}", ask)

    def dataset_files(self, handle: str, version: int) -> dict[str, int]:
        """Return {name: bytes} of a version, from all pages."""
        request = self._about_dataset("ListDatasetFiles", handle)
        request.dataset_version_number = version
        what = f"list the files of {handle} version {version}"
        files = {}
        for page in self._pages(what, request, 100, self._datasets.list_dataset_files):
            if page.error_message:
                raise Refused(
                    f"Kaggle did not list the files of {handle}: {page.error_message}.\n"
                    "Try again in a minute."
                )
            files.update({file.name: file.total_bytes or 0 for file in page.dataset_files or ()})
        return files

    def download_dataset_file(
        self, handle: str, version: int, name: str, path: Path, note: Path | None = None
    ) -> None:
        """Download one file of a version to `path`. `note`: as in `_download`."""
        request = self._about_dataset("DownloadDataset", handle)
        request.file_name, request.dataset_version_number = name, version
        what = f"download {name} of {handle} version {version}"
        ask = self._with_headers(lambda: self._datasets.download_dataset(request))
        self._download(what, path, ask, note=note)

    def upload(self, path: Path, note: Path | None = None) -> str:
        """Upload a file and return its token for `create_dataset`.

        An upload is retried, since nothing refers to it yet. `note`: as in `_upload`.
        """
        request = self._blobs_types.ApiStartBlobUploadRequest()
        request.type = self._blobs_types.ApiBlobType.DATASET
        request.name = path.name
        request.content_length = path.stat().st_size
        request.last_modified_epoch_seconds = int(path.stat().st_mtime)

        return self._upload(path, lambda: self._blobs.start_blob_upload(request), note)

    def create_dataset(
        self, handle: str, *, title: str, description: str, tokens: Sequence[str]
    ) -> None:
        """Create a private dataset from uploaded files. Sent once; may raise `Ambiguous`."""
        request = self._datasets_types.ApiCreateDatasetRequest()
        request.owner_slug, request.slug = split(handle)
        request.title, request.description = title, description
        request.license_name = "CC0-1.0"  # Kaggle requires one; the dataset is private
        request.is_private = True
        request.files = self._new_files(tokens)
        what = f"create the dataset {handle}"
        answer = self._write(what, lambda: self._datasets.create_dataset(request))
        failure_messages.require_ok(what, answer)

    def create_dataset_version(self, handle: str, *, notes: str, tokens: Sequence[str]) -> None:
        """Add a version made of exactly these uploaded files. Sent once; may raise `Ambiguous`."""
        request = self._about_dataset("CreateDatasetVersion", handle)
        request.body = self._datasets_types.ApiCreateDatasetVersionRequestBody()
        request.body.version_notes, request.body.files = notes, self._new_files(tokens)
        what = f"add a version to the dataset {handle}"
        # The official client's own wrapper retries this call, and so makes two versions.
        answer = self._write(what, lambda: self._datasets.create_dataset_version(request))
        failure_messages.require_ok(what, answer)

    def delete_dataset(self, handle: str) -> None:
        """Delete our dataset with all of its versions. Sent once; may raise `Ambiguous`."""
        request = self._about_dataset("DeleteDataset", handle)
        what = f"delete the dataset {handle}"
        answer = self._write(what, lambda: self._datasets.delete_dataset(request))
        failure_messages.require_none(what, answer.error)

    def _new_files(self, tokens: Sequence[str]) -> list[Any]:
        files = []
        for token in tokens:
            file = self._datasets_types.ApiDatasetNewFile()
            file.token = token
            files.append(file)
        return files

    def _about_dataset(self, call: str, handle: str) -> Any:
        request = getattr(self._datasets_types, f"Api{call}Request")()
        request.owner_slug, request.dataset_slug = split(handle)
        return request
