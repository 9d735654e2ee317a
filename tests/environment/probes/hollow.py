# SPDX-License-Identifier: Apache-2.0
"""Lets a few modules of a large package run alone: what is not there is a stand-in.

A stand-in can be imported, called, derived from and used as a decorator; it is false, and it does
nothing. The modules that are there run as they were released.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


class _Absent(type):
    """A class of which only the name is known."""

    def __getattr__(cls, name: str) -> _Absent:
        return _absent(f"{cls.__name__}.{name}")

    def __bool__(cls) -> bool:
        return False


class _Nothing:
    """What a stand-in returns: as a decorator it leaves what it decorates as it is."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, name: str) -> _Absent:
        return _absent(name)

    def __call__(self, *args: Any, **_: object) -> Any:
        return args[0] if args else self

    def __bool__(self) -> bool:
        return False


def _absent(name: str) -> _Absent:
    if name.rpartition(".")[2].startswith("__"):
        raise AttributeError(name)
    return _Absent(name, (_Nothing, Exception), {})


class _Hollow(ModuleType):
    """A module of which only the parts in its folders are there."""

    def __getattr__(self, name: str) -> Any:
        if (
            not name.startswith("__")
            and importlib.util.find_spec(f"{self.__name__}.{name}").origin
        ):
            return importlib.import_module(f"{self.__name__}.{name}")
        return _absent(name)


class _Finder:
    """Finds the modules of one package in a folder, and stand-ins for all others."""

    def __init__(self, package: str, folder: Path) -> None:
        self.package, self.folder = package, folder

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != self.package:
            return None
        place = self.folder.joinpath(*name.split("."))
        if (place / "__init__.py").exists():
            return importlib.util.spec_from_file_location(
                name, place / "__init__.py", submodule_search_locations=[str(place)]
            )
        if place.with_suffix(".py").exists():
            return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: there is nothing."""


def use(package: str) -> None:
    """Take the package's modules from the folder that PARTS names; without it, leave it be.

    In a pod that has the whole package there is no such folder.
    """
    folder = os.environ.get("PARTS")
    if folder:
        sys.meta_path.insert(0, _Finder(package, Path(folder)))
