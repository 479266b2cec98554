"""The source that a URL asks for.  Layer 3 (storage)."""

from __future__ import annotations

from collections.abc import Mapping

from tisfast.storage import mlflow_registry
from tisfast.storage.http_source import WebArchive
from tisfast.storage.hugging_face import HubFolder
from tisfast.storage.location import Archive, Bucket, HubRepo, Location, parse
from tisfast.storage.objects import ObjectStore
from tisfast.storage.source import Refused, Source


def open_source(location: Location, variables: Mapping[str, str]) -> Source:
    """Blocks where a registry must be asked.  Raises ConfigError (a missing extra, credentials) or Unreachable."""
    place = location.place
    if isinstance(place, Bucket):
        return ObjectStore(location, place, variables)
    if isinstance(place, Archive):
        return WebArchive(location, place)
    if isinstance(place, HubRepo):
        return HubFolder(location, place)
    tracking, web = mlflow_registry.tracking_server(location, variables)
    uri = mlflow_registry.artifact_uri(web, tracking, location, place)
    if uri.startswith("mlflow-artifacts:"):
        return mlflow_registry.ProxiedArtifacts(web, tracking, uri, location.shown)
    folder = mlflow_registry.local_folder(uri)
    if folder is not None:
        return mlflow_registry.LocalArtifacts(folder, location.shown)
    there = parse(uri)
    if there is None or not isinstance(there.place, Bucket):
        raise Refused(
            f"{location.shown}: the registry keeps its files at {uri}, which is not served",
            key="model-repository",
            hint="served: the tracking server itself, s3, gs, az, a local folder",
        )
    return open_source(there, variables)
