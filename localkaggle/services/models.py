"""Models: the service that keeps models, their instances (a framework and a variation), and the
versions of these, which are made of uploads and ready at once.
"""

import re
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kagglesdk.models.types.model_api_service as types
from kagglesdk.models.types.model_enums import ModelFramework
from kagglesdk.models.types.model_types import (
    BaseModelInstanceInformation,
    ModelInstance,
    ModelInstanceVersion,
    ModelInstanceVersionList,
    Owner,
)

from localkaggle.services.protocol import SLUG, ApiError, make, page, require
from localkaggle.services.storage import Redirect, Storage, file_names, list_files
from localkaggle.services.uploads import Uploads

SITE = "https://www.kaggle.com/models"
VARIATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# What a request says of a model and of an instance, and an answer repeats.
MODEL = ("title", "subtitle", "is_private", "description", "publish_time", "provenance_sources")
INSTANCE = (
    *("overview", "usage", "license_name", "fine_tunable", "training_data"),
    *("model_instance_type", "external_base_model_url"),
)


@dataclass
class Version:
    """One version of an instance. `folder` holds its files."""

    id: int
    number: int
    notes: str
    folder: Path


@dataclass
class Instance:
    """A variation of a model in one framework, and its versions, oldest first.

    Attributes:
        page: has the fields of `INSTANCE`.
        made: how many versions it ever had.
    """

    id: int
    framework: ModelFramework
    slug: str
    page: Any
    versions: list[Version] = field(default_factory=list)
    made: int = 0


@dataclass
class Model:
    """A model and its instances. `page` has the fields of `MODEL`."""

    id: int
    owner: str
    slug: str
    page: Any
    instances: dict[tuple[ModelFramework, str], Instance] = field(default_factory=dict)

    @property
    def handle(self) -> str:
        """The owner and the slug."""
        return f"{self.owner}/{self.slug}"


class Models:
    """`models.ModelApiService`.

    Args:
        storage: of the server.
        folder: gets one folder per version.
        uploads: the files that new versions are made of.
    """

    KEPT = ("models", "_last_id")

    def __init__(self, storage: Storage, folder: Path, uploads: Uploads) -> None:
        self.models: dict[str, Model] = {}
        self._last_id = 6999
        self._storage, self._folder, self._uploads = storage, folder, uploads

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # Models

    def ListModels(self, request: Any, user: str) -> Any:
        """List a page of the public models, the newest first; of his own all that a user has."""
        owner, search = request.owner or "", (request.search or "").lower()
        found = [
            model
            for model in reversed(self.models.values())
            if (not owner or model.owner == owner)
            and (not model.page.is_private or model.owner == user == owner)
            and (search in model.slug or search in model.page.title.lower())
        ]
        models, token = page(found, request.page_token, request.page_size)
        return make(
            types.ApiListModelsResponse,
            models=[_model(model) for model in models],
            next_page_token=token,
            total_results=len(found),
        )

    def GetModel(self, request: Any, user: str) -> Any:
        """Describe a model and its instances."""
        return _model(self._find(request, user))

    def CreateModel(self, request: Any, user: str) -> Any:
        """Make a model without instances; private unless the request says otherwise."""
        if (request.owner_slug or user) != user:
            raise ApiError(403, "Permission 'models.create' was denied")
        slug = require(SLUG, request.slug, "slug")
        if f"{user}/{slug}" in self.models:
            return _refused(f'The slug "{slug}" is already used by one of your models.')
        if not request.title:
            return _refused("The model has no title")
        described = make(types.ApiModel, **{name: getattr(request, name) for name in MODEL})
        described.is_private = request.to_dict().get("isPrivate", True)
        model = self.models[f"{user}/{slug}"] = Model(self._new_id(), user, slug, described)
        return _answer(types.ApiCreateModelResponse, model)

    def UpdateModel(self, request: Any, user: str) -> Any:
        """Change what the request's mask names."""
        model = self._own(request, user)
        _change(model.page, request, MODEL)
        return _answer(types.ApiUpdateModelResponse, model)

    def DeleteModel(self, request: Any, user: str) -> Any:
        """Delete a model with its instances."""
        del self.models[self._own(request, user).handle]
        return types.ApiDeleteModelResponse()

    # Instances

    def ListModelInstances(self, request: Any, user: str) -> Any:
        """List a page of a model's instances."""
        model = self._find(request, user)
        instances, token = page(
            list(model.instances.values()), request.page_token, request.page_size
        )
        return make(
            types.ApiListModelInstancesResponse,
            instances=[_listed(model, instance) for instance in instances],
            next_page_token=token,
        )

    def GetModelInstance(self, request: Any, user: str) -> Any:
        """Describe an instance and its newest version."""
        model = self._find(request, user)
        return _instance(model, _found(model, request))

    def CreateModelInstance(self, request: Any, user: str) -> Any:
        """Make an instance with its first version."""
        model, body = self._own(request, user), request.body
        slug = require(VARIATION, body.instance_slug, "instance slug")
        if body.framework == ModelFramework.MODEL_FRAMEWORK_UNSPECIFIED:
            return _refused("The instance has no framework")
        if (body.framework, slug) in model.instances:
            return _refused(f'An instance with the slug "{slug}" already exists.')
        described = make(types.ApiModelInstance, **{name: getattr(body, name) for name in INSTANCE})
        described.base_model_instance_information = self._base(body, user)
        instance = Instance(self._new_id(), body.framework, slug, described)
        self._add_version(model, instance, body, "")
        model.instances[instance.framework, slug] = instance
        return _answer(types.ApiCreateModelResponse, model, instance)

    def UpdateModelInstance(self, request: Any, user: str) -> Any:
        """Change what the request's mask names."""
        model = self._own(request, user)
        instance = _found(model, request)
        if _change(instance.page, request, INSTANCE, "base_model_instance"):
            instance.page.base_model_instance_information = self._base(request, user)
        return _answer(types.ApiUpdateModelResponse, model, instance)

    def DeleteModelInstance(self, request: Any, user: str) -> Any:
        """Delete an instance with its versions."""
        model = self._own(request, user)
        instance = _found(model, request)
        del model.instances[instance.framework, instance.slug]
        return types.ApiDeleteModelResponse()

    # Versions

    def CreateModelInstanceVersion(self, request: Any, user: str) -> Any:
        """Add a version. It inherits no files from the one before."""
        model = self._own(request, user)
        instance = _found(model, request)
        self._add_version(model, instance, request.body, request.body.version_notes)
        return _answer(types.ApiCreateModelResponse, model, instance)

    def ListModelInstanceVersions(self, request: Any, user: str) -> Any:
        """List a page of an instance's versions, the newest first."""
        model = self._find(request, user)
        instance = _found(model, request)
        versions, token = page(instance.versions[::-1], request.page_token, request.page_size)
        listed = [
            make(
                ModelInstanceVersion,
                id=version.id,
                framework=instance.framework,
                variation_slug=instance.slug,
                version_number=version.number,
                model_title=model.page.title,
                is_private=model.page.is_private,
            )
            for version in versions
        ]
        return make(
            types.ApiListModelInstanceVersionsResponse,
            version_list=make(ModelInstanceVersionList, versions=listed),
            next_page_token=token,
        )

    def ListModelInstanceVersionFiles(self, request: Any, user: str) -> Any:
        """List a page of the files of a version, or of the newest one."""
        version = _version(_found(self._find(request, user), request), request.version_number)
        files, token = list_files(version.folder, types.ApiModelFile, request, size="size")
        return make(
            types.ApiListModelInstanceVersionFilesResponse, files=files, next_page_token=token
        )

    def DownloadModelInstanceVersion(self, request: Any, user: str) -> Any:
        """Redirect to one file of a version, or to a tar.gz of all of them."""
        version = _version(_found(self._find(request, user), request), request.version_number)
        names, wanted = file_names(version.folder), request.path
        if wanted:
            if wanted not in names:
                raise ApiError(404, "Not found")
            raise Redirect(self._storage.share(wanted.split("/")[-1], version.folder / wanted))
        archive = self._storage.fresh()
        with tarfile.open(archive, "w:gz") as file:
            for name in names:
                file.add(version.folder / name, name)
        raise Redirect(self._storage.share("archive.tar.gz", archive))

    def DeleteModelInstanceVersion(self, request: Any, user: str) -> Any:
        """Delete one version. The others keep their numbers."""
        instance = _found(self._own(request, user), request)
        instance.versions.remove(_version(instance, request.version_number))
        return types.ApiDeleteModelResponse()

    def _find(self, request: Any, user: str) -> Model:
        model = self.models.get(f"{request.owner_slug}/{request.model_slug}")
        if model is None or (model.owner != user and model.page.is_private):
            raise ApiError(403, "Permission 'models.get' was denied")
        return model

    def _own(self, request: Any, user: str) -> Model:
        model = self._find(request, user)
        if model.owner != user:
            raise ApiError(403, "Permission 'models.update' was denied")
        return model

    def _add_version(self, model: Model, instance: Instance, content: Any, notes: str) -> None:
        number = instance.made + 1
        folder = self._folder / f"{model.owner}--{model.slug}--{instance.id}--v{number}"
        self._uploads.write(content, folder)
        instance.versions.append(Version(self._new_id(), number, notes or "", folder))
        instance.made = number

    def _base(self, content: Any, user: str) -> Any:
        """Return what an answer says of the instance that another one is made from, or None."""
        if not content.base_model_instance:
            return None
        for model in self.models.values():
            for instance in model.instances.values():
                seen = model.owner == user or not model.page.is_private
                if seen and _ref(model, instance).lower() == content.base_model_instance.lower():
                    return make(
                        BaseModelInstanceInformation,
                        id=instance.id,
                        owner=make(Owner, slug=model.owner),
                        model_slug=model.slug,
                        instance_slug=instance.slug,
                        framework=instance.framework,
                    )
        raise ApiError(404, f"There is no model instance {content.base_model_instance[:200]!r}")


def _change(described: Any, request: Any, names: tuple[str, ...], other: str = "") -> bool:
    """Copy those of the fields that the request's mask names, and return whether it has `other`.

    Raises:
        ApiError: 400 if the mask names another field.
    """
    mask = list(request.update_mask.paths) if request.update_mask else []
    unknown = set(mask) - {*names, other}
    if unknown:
        raise ApiError(400, f"Invalid update mask: {sorted(unknown)}")
    for name in set(mask) - {other}:
        setattr(described, name, getattr(request, name))
    return other in mask


def _found(model: Model, request: Any) -> Instance:
    instance = model.instances.get((request.framework, request.instance_slug))
    if instance is None:
        raise ApiError(404, "Not found")
    return instance


def _version(instance: Instance, number: int) -> Version:
    """Return the version with this number, or the newest one for 0."""
    found = [version for version in instance.versions if number in (0, version.number)]
    if not found:
        raise ApiError(404, "Not found")
    return found[-1]


def _word(framework: ModelFramework) -> str:
    """Return a framework as it is written in an address: `jax`, `pytorch`."""
    return str(framework.name).removeprefix("MODEL_FRAMEWORK_").replace("_", "").lower()


def _ref(model: Model, instance: Instance | None = None) -> str:
    return (
        f"{model.handle}/{_word(instance.framework)}/{instance.slug}" if instance else model.handle
    )


def _refused(error: str) -> Any:
    return make(types.ApiCreateModelResponse, error=error)


def _answer(kind: type, model: Model, instance: Instance | None = None) -> Any:
    ref = _ref(model, instance)
    return make(kind, id=(instance or model).id, ref=ref, url=f"{SITE}/{ref}")


def _model(model: Model) -> Any:
    return make(
        types.ApiModel,
        id=model.id,
        ref=model.handle,
        slug=model.slug,
        author=model.owner,
        url=f"{SITE}/{_ref(model)}",
        instances=[_instance(model, instance) for instance in model.instances.values()],
        **{name: getattr(model.page, name) for name in MODEL},
    )


def _shared(instance: Instance) -> dict[str, Any]:
    """Return what both kinds of answers say of an instance and its newest version."""
    told = {name: getattr(instance.page, name) for name in INSTANCE if name != "license_name"}
    told |= {"id": instance.id, "slug": instance.slug, "framework": instance.framework}
    told["base_model_instance_information"] = instance.page.base_model_instance_information
    for newest in instance.versions[-1:]:
        told |= {"version_id": newest.id, "version_number": newest.number}
        told["total_uncompressed_bytes"] = sum(
            (newest.folder / name).stat().st_size for name in file_names(newest.folder)
        )
    return told


def _instance(model: Model, instance: Instance) -> Any:
    return make(
        types.ApiModelInstance,
        url=f"{SITE}/{_ref(model, instance)}",
        license_name=instance.page.license_name,
        **_shared(instance),
    )


def _listed(model: Model, instance: Instance) -> Any:
    notes = "".join(version.notes for version in instance.versions[-1:])
    return make(
        ModelInstance,
        owner_slug=model.owner,
        model_slug=model.slug,
        model_id=model.id,
        version_notes=notes,
        **_shared(instance),
    )
