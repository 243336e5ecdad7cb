"""Models: versions of networks that others published, each a folder of this machine.

A name is owner/model/framework/variation/version. Callers may write the framework in capitals or
not; sessions see it in small letters, as on Kaggle.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.exceptions import Forbidden

from localkaggle.services import protocol
from localkaggle.services.protocol import Json, file_names

if TYPE_CHECKING:
    from localkaggle.server import LocalKaggle

NAME = re.compile(r"(?:(?!\.)[A-Za-z0-9_.-]{1,100}/){4}[1-9][0-9]{0,8}")
NO_CONSENT = "User has not consented to terms of use."


def parse_published(text: str) -> tuple[str, Path]:
    """Return name and folder of a published model from OWNER/MODEL/FRAMEWORK/VARIATION/VERSION=DIR.

    >>> parse_published("keras/dinov3/Keras/small/1=.")
    ('keras/dinov3/keras/small/1', PosixPath('.'))

    Raises:
        ValueError: if the form is wrong or the folder is missing; says what to write.
    """
    name, _, folder = text.partition("=")
    if not NAME.fullmatch(name) or not folder:
        raise ValueError(
            f"{text[:200]!r}: expected OWNER/MODEL/FRAMEWORK/VARIATION/VERSION=DIR, as"
            " keras/dinov3/keras/dinov3_vit_small_lvd1689m/1=data/dinov3"
        )
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
        raise ValueError(f"{text[:200]!r}: expected a folder with the model's files")
    return name.lower(), Path(folder)


class Models:
    """`models.ModelApiService`.

    Args:
        site: on which they are.

    Attributes:
        models: {name in small letters: folder}.
    """

    KEPT = ("models",)

    def __init__(self, site: "LocalKaggle") -> None:
        self.models: dict[str, Path] = {}
        self._site = site

    def publish(self, published: Mapping[str, Path]) -> None:
        """Add the {name: folder} of other users, mounted from these folders."""
        self.models |= {name.lower(): folder.resolve() for name, folder in published.items()}

    def ListModelInstanceVersionFiles(self, request: Any, user: str) -> Json:
        """List a page of a version's files."""
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
        """Return the folder that a session sees of a version, or None."""
        return None if self._site.facts.gate == "licence" else self.models.get(source.lower())
