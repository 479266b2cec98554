"""`tisfast check PATH...`: every error of repositories and model files, without serving them.  Top layer (cli)."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tisfast.cli_arguments import Parser
from tisfast.cli_run import run_models
from tisfast.config.backend_flags import read_backends
from tisfast.config.backends import Backends
from tisfast.config.served_files import Arguments, is_there, loose_file, read_files
from tisfast.config.settings import CPU_ONLY, WorkerSettings
from tisfast.config.storage_settings import read_storage
from tisfast.flags import SERVED, Flag
from tisfast.models.gpu_placement import Placement, placement
from tisfast.native.cuda_sharing import is_wsl, seen_gpus, sentences
from tisfast.native.nvml import open_nvml
from tisfast.processes.machine import driver_gpus
from tisfast.repo.check import check, count
from tisfast.repo.links import LinkedFiles, link_files
from tisfast.repo.scan import ScanOptions
from tisfast.storage.face import open_storage
from tisfast.storage.location import parse

OF_CHECKS: Final = (
    "backend-directory", "min-supported-compute-capability", "backend-environments", "environment-cache-dir",
)  # fmt: skip
"""Flags of `serve` that `check` takes besides those of storage; the last two matter with --run alone."""


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Check what the arguments name; the exit code.  Raises TisError."""
    shared_flags = [flag for flag in SERVED if flag.group == "Storage" or flag.name in OF_CHECKS]
    values = _parser(shared_flags).parse_args(list(arguments))
    backends = read_backends(values.backend_directory, [])
    given = _sorted_out(values.path, backends)
    with tempfile.TemporaryDirectory(prefix="tisfast-check-") as private:
        linked = link_files(given.files, Path(private, "files"), backends)
        gpus = _placement(values.min_supported_compute_capability, environ)
        looking = _looking(values, gpus, linked, backends)
        findings, models = _checked(given.repositories, linked, looking, values, environ)
    for finding in findings:
        print(finding)
    if gpus.are_visible:
        for said in sentences(seen_gpus(), wsl=is_wsl(), instances=gpus):
            print(f"note: {said}")
    if not models and not findings:
        where = ", ".join(values.path)
        findings = [f"there is no model in {where}: a repository is a folder that holds a folder for each model"]
        loose = next((found for path in given.repositories if (found := loose_file(Path(path), backends))), "")
        findings[0] += f"; 'tisfast check {shlex.quote(loose)}' checks that file" if loose else ""
        print(findings[0])
    print(f"{models} model(s), {f'{len(findings)} error(s)' if findings else 'no errors'}")
    if findings or not values.run:
        return 1 if findings else 0
    return _run_models(values, given.repositories, shared_flags)


def _parser(shared_flags: Sequence[Flag]) -> Parser:
    parser = Parser(
        prog="tisfast check",
        allow_abbrev=False,
        description="Report every error in model repositories and model files.",
    )
    parser.add_argument(
        "path", nargs="+", help="folder that holds models, URL as of --model-repository, FILE or NAME=FILE"
    )
    parser.add_argument("--strict", action="store_true", help="as with --disable-auto-complete-config")
    parser.add_argument(
        "--run", action="store_true", help="load the models and execute their warm-up samples (model_warmup), too"
    )
    for flag in shared_flags:
        options: dict[str, Any] = {"type": flag.kind, "default": flag.default, "choices": flag.choices}
        parser.add_argument(f"--{flag.name}", help=flag.help, **options)
    return parser


def _sorted_out(texts: Sequence[str], backends: Backends) -> Arguments:
    """Files, and repositories: those that are not there, and URLs, too.  Raises ConfigError."""
    local = [text for text in texts if parse(text) is None and is_there(text)]
    found = read_files(local, backends)
    return Arguments(found.files, (*found.repositories, *(text for text in texts if text not in local)))


def _placement(capability_min: float, environ: Mapping[str, str]) -> Placement:
    workers = WorkerSettings(
        sys.executable,
        cuda_visible=environ.get("CUDA_VISIBLE_DEVICES"),
        cpu_only=CPU_ONLY in environ,
        capability_min=capability_min,
    )
    nvml = None if workers.cpu_only else open_nvml()
    found = placement(workers, nvml, driver_gpus())
    if nvml is not None:
        nvml.close()
    return found


def _looking(values: argparse.Namespace, gpus: Placement, linked: LinkedFiles, backends: Backends) -> ScanOptions:
    return ScanOptions(
        auto_complete=not values.strict,
        gpus=gpus.usable,
        backends=backends,
        files=linked.models,
    )


def _checked(
    repositories: Sequence[str],
    linked: LinkedFiles,
    looking: ScanOptions,
    values: argparse.Namespace,
    environ: Mapping[str, str],
) -> tuple[list[str], int]:
    """Lines, and how many models were looked at."""
    storage = open_storage(repositories, read_storage(vars(values), environ))
    try:
        absent = asyncio.run(storage.refresh())
        folders = {url: str(storage.folder(url)) for url in repositories}
        looked = [*folders.values(), str(linked.repository)]
        findings = [_with_urls(str(finding), folders) for finding in check(looked, looking, linked.check_tensors)]
        findings += [f"{name}: {why}" for name, why in absent.items()]
        return [linked.named(finding) for finding in findings], count(looked)
    finally:
        storage.close()


def _with_urls(text: str, folders: Mapping[str, str]) -> str:
    """A message about local folders of remote repositories, with their URLs instead."""
    for url, folder in folders.items():
        text = text.replace(folder, url.rstrip("/"))
    return text


def _run_models(values: argparse.Namespace, repositories: Sequence[str], shared_flags: Sequence[Flag]) -> int:
    given = {flag.name: getattr(values, flag.name.replace("-", "_")) for flag in shared_flags}
    flags = [f"--{flag.name}={given[flag.name]}" for flag in shared_flags if given[flag.name] != flag.default]
    if values.strict:
        flags.append("--disable-auto-complete-config")
    files = [text for text in values.path if text not in repositories]
    trial = run_models(repositories, files, flags)
    for finding in trial.findings:
        print(finding)
    print(f"{trial.models} model(s) loaded and warmed up, {len(trial.findings) or 'no'} finding(s)")
    return 1 if trial.findings else 0
