"""Read an artifact's manifest.json, and verify that the files are those that the training wrote.

The model side writes it (docs/dev/design.md). No framework is needed to read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.errors import Unverified, UsageError
from deploy.responses import MALFORMED
from formats import checksums

NAME = "manifest.json"
# Files that a desktop leaves in any folder that is looked at.
OF_DESKTOPS = (".DS_Store", "Thumbs.db", "desktop.ini")
AGAIN = (
    "If Kaggle has no better one, train again. To pull it again, which sets a changed folder"
    " aside:\ninvoke pull"
)


@dataclass(frozen=True)
class Manifest:
    """What the Kaggle side needs of a manifest.

    Attributes:
        bundle_sha256: "" if the training was not started by a bundle.
        files: {name: (bytes, sha256)} of every other file in the folder.
        competition: of the config that it was trained with; "" if no config is in it.
    """

    run_id: str
    weights_sha256: str
    bundle_sha256: str
    files: Mapping[str, tuple[int, str]]
    competition: str = ""


def verify(artifact: Path) -> Manifest:
    """Return the manifest of a folder after comparing every file with it, but those of desktops.

    Raises:
        UsageError: if there is no artifact.
        Unverified: if a file is missing, unexpected or changed, or the manifest was changed.
    """
    path = artifact / NAME
    if not path.is_file():
        raise UsageError(f"{artifact} has no {NAME}; expected a pulled artifact. Run:\ninvoke pull")
    manifest = _parse(path)
    paths = (path for path in artifact.rglob("*") if not path.is_dir())
    found = {path.relative_to(artifact).as_posix(): path for path in paths}
    unlisted = set(found) - set(manifest.files) - {NAME}
    unlisted -= {name for name in unlisted if found[name].name in OF_DESKTOPS}
    problems = [f"{name} is missing" for name in sorted(set(manifest.files) - set(found))]
    problems += [f"{name} is not in the manifest" for name in sorted(unlisted)]
    for name in sorted(set(manifest.files) & set(found)):
        size, digest = manifest.files[name]
        if found[name].is_symlink():
            problems.append(f"{name} is a link")
        elif found[name].stat().st_size != size:
            problems.append(f"{name} has {found[name].stat().st_size} bytes, expected {size}")
        elif checksums.sha256(found[name]) != digest:
            problems.append(f"{name} has another sha256 than {digest}")
    if manifest.weights_sha256 not in {digest for _, digest in manifest.files.values()}:
        problems.append("weights_sha256 is that of no file")
    if len(problems) == len(unlisted) > 0:
        raise Unverified(
            f"{artifact} holds what is not in its manifest: {', '.join(sorted(unlisted))}.\n"
            "Expected the files that the run wrote, and no others. Move it out of that folder, and"
            " run the same command again."
        )
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise Unverified(f"{artifact} is not what its manifest says:\n{listed}\n{AGAIN}")
    return manifest


def _parse(path: Path) -> Manifest:
    try:
        value = checksums.opened(path.read_bytes())
        files = {
            str(name): (int(entry["size"]), str(entry["sha256"]))
            for name, entry in value["files"].items()
        }
        texts = [value[key] for key in ("run_id", "weights_sha256")]
        texts.append(value["bundle_sha256"] or "")  # null: trained from a checkout
        config = value.get("config")
        competition = str(config.get("competition", "")) if isinstance(config, dict) else ""
    except (*MALFORMED, RecursionError) as error:
        raise Unverified(
            f"{path} cannot be read: {type(error).__name__}: {error}.\n"
            "Expected the bytes that the run wrote, with run_id, weights_sha256, bundle_sha256 and"
            f" files.\n{AGAIN}"
        ) from error
    if not all(isinstance(text, str) for text in texts):
        raise Unverified(f"{path} holds {texts}; expected three texts.\n{AGAIN}")
    run_id, weights, bundle = texts
    return Manifest(run_id, weights, bundle, files, competition)
