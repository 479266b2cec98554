"""Models as a load call says instead of the disk: another configuration, other files.  Layer 3 (repo).

Files lie in a private folder of the server's, one for each load, which goes with the copy that was loaded from it.  The
base is a folder that is removed after the server, however it ends.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.config.error_report import ConfigErrors
from tisfast.errors import ConfigError, Internal, NotFound, TisError
from tisfast.repo.layout import GIVEN_NAME, is_given_name
from tisfast.repo.scan import CONFIG, ScanOptions, scan_model
from tisfast.repo.scan_result import ModelFailure, ModelSource

FOLDER: Final = "overrides"
"""Below the control directory; the nurseries remove it by this name when the server was killed."""


@dataclass(frozen=True)
class LoadOrder:
    """A model to load, or to bring up to date.

    config: a configuration in JSON in place of the file's; files: content by "<version>/<name>", in place of the
    folder; force: load anew even what has not changed.
    """

    name: str
    config: str | None = None
    files: Mapping[str, bytes | memoryview] = field(default_factory=dict)
    force: bool = False

    @property
    def overrides(self) -> bool:
        """Whether the model is another one than on the disk."""
        return self.config is not None or bool(self.files)


def find_overridden(
    order: LoadOrder, repositories: Sequence[Path], looking: ScanOptions, base: Path
) -> ModelSource | TisError:
    """The model of an order with overrides, or what is wrong with it.  Reads and writes files; starts nothing.

    base: an existing folder that is private to the server.  A source with files has a `private` folder, which whoever
    loads it removes after its use.
    """
    looking = replace(looking, config=order.config)
    try:
        if order.files:
            return _from_files(order, looking, base)
        return replace(_checked(scan_model(repositories, order.name, looking)), overridden=True)
    except NotFound:
        return _refused(order.name)
    except ConfigErrors as error:
        return error
    except TisError as error:
        return _refused(order.name, str(error))
    except OSError as error:
        return _refused(order.name, f"its files cannot be kept: {error.strerror}: {error.filename}")


def remove_private(source: ModelSource) -> None:
    """The copy that was loaded from this source is gone: so may be its files.  Nothing for a model of a repository."""
    if source.private is not None:
        shutil.rmtree(source.private, ignore_errors=True)


def _from_files(order: LoadOrder, looking: ScanOptions, base: Path) -> ModelSource:
    if order.config is None:
        raise Internal("Load parameter 'config' must be specified for model file override")
    if len(order.files) > limits.OVERRIDE_FILES_MAX:
        raise Internal(f"{len(order.files)} files to override, {limits.OVERRIDE_FILES_MAX} are the limit")
    if not is_given_name(order.name):
        raise Internal(f"{order.name!r:.300} is no name of a model: {GIVEN_NAME}")
    repository = Path(tempfile.mkdtemp(prefix="", dir=base))  # mode 0700
    try:
        _write(order.files, repository / order.name)
        source = _checked(scan_model([repository], order.name, looking))
        _check_pickled(source, looking)
        return replace(source, overridden=True, private=repository)
    except BaseException:
        shutil.rmtree(repository, ignore_errors=True)
        raise


def _checked(found: ModelSource | ModelFailure) -> ModelSource:
    """Raises Internal with all that is wrong, or ConfigErrors with what only a load fails by."""
    if isinstance(found, ModelSource):
        return found
    errors = ConfigErrors(found.errors, found.versions)
    if errors.at_load:
        raise errors
    raise Internal("\n".join(map(_said, found.errors)))


def _check_pickled(source: ModelSource, looking: ScanOptions) -> None:
    """Raises Internal for files that run code when they are read, where the operator has not allowed them."""
    backend = looking.backends.named(source.config.backend)
    if backend is not None and backend.pickled and not looking.allow_pickled:
        raise Internal(
            f"a file override brings {source.config.default_model_filename or 'a model'}, and files of backend "
            f"'{backend.name}' can run code when they are read: the server takes them only with --allow-pickled-models"
        )


def _said(error: ConfigError) -> str:
    """The text of an error: one without a file is about the configuration, but for versions that are not there."""
    about_files = error.file or error.key == "version_policy"
    return str(error) if about_files else f"Invalid config override: {error}"


def _write(files: Mapping[str, bytes | memoryview], folder: Path) -> None:
    places = {name: folder / _inside(name) for name in files}
    folder.mkdir()
    for name in sorted(files):
        try:
            _write_one(folder, places[name], files[name])
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise _invalid(
                name, ", directory has been created as a file, or another parameter names the same file"
            ) from None
        except OSError as error:
            raise _invalid(name, f": it cannot be written: {error.strerror}") from None


def _write_one(folder: Path, place: Path, content: bytes | memoryview) -> None:
    """Never through what is there already: two names may mean one place.

    The model's folder is not made anew: when it is gone, the server has ended meanwhile.
    """
    for parent in reversed(place.relative_to(folder).parents[:-1]):
        (folder / parent).mkdir(exist_ok=True)
    with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)


def _inside(name: str) -> str:
    """The path below the model's folder.  Raises Internal for one that is elsewhere, or names no file."""
    path = posixpath.normpath(name)
    parts = path.split("/")
    if parts[0] in ("", "..") or "\0" in name or "\\" in name:
        raise _invalid(name, f" with normalized path '{path:.300}' must stay within model directory.")
    if path == "." or name.endswith("/"):
        raise _invalid(name, ": it names no file; write file:VERSION/NAME")
    if path == CONFIG:
        raise _invalid(name, ": the configuration is what parameter 'config' says")
    if len(parts) > limits.OVERRIDE_DEPTH_MAX:
        raise _invalid(name, f": it lies {len(parts)} folders deep, {limits.OVERRIDE_DEPTH_MAX} are the limit")
    return path


def _invalid(name: str, reason: str) -> Internal:
    return Internal(f"Invalid file parameter 'file:{name:.300}'{reason}")


def _refused(name: str, reason: str = "") -> Internal:
    """The error that Triton writes into its log only."""
    start = f"failed to load '{name}', failed to poll from model repository"
    return Internal(f"{start}: {reason}" if reason else start)
