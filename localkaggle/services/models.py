"""The model service, which provides versions of other users' models from folders on this machine.

Models are named owner/model/framework/variation/version. As on Kaggle, names in requests are
case-insensitive, and models are mounted under their lower-case names.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import Forbidden

from localkaggle.services import protocol
from localkaggle.services.protocol import Json, file_names

if TYPE_CHECKING:
    from localkaggle.server import LocalKaggle

NO_CONSENT = "User has not consented to terms of use."


class Models:
    """`models.ModelApiService`. `models` is {lower-case name: folder}."""

    KEPT = ("models",)

    def __init__(self, site: "LocalKaggle") -> None:
        self.models: dict[str, Path] = {}
        self._site = site

    def publish(self, published: Mapping[str, Path]) -> None:
        """Add models of other users, given as {name: folder}. Sessions mount these folders."""
        self.models |= {name.lower(): folder.resolve() for name, folder in published.items()}

    def ListModelInstanceVersionFiles(self, request: Any, user: str) -> Json:
        framework = request.framework.name.removeprefix("MODEL_FRAMEWORK_").replace("_", "")
        parts = (request.owner_slug, request.model_slug, framework, request.instance_slug)
        folder = self.models.get("/".join((*parts, str(request.version_number))).lower())
        if folder is None:
            raise Forbidden("Permission 'models.get' was denied")
        if self._site.facts.gate == "licence":
            raise Forbidden(NO_CONSENT)
        names, token = protocol.page(file_names(folder), request)
        return {"files": protocol.listed(folder, names, "size"), "nextPageToken": token}

    def mounted(self, source: str) -> Path | None:
        return None if self._site.facts.gate == "licence" else self.models.get(source.lower())
