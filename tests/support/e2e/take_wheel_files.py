# SPDX-License-Identifier: Apache-2.0
"""Takes some files out of a wheel in the package index without downloading the rest of it.

Runs in a virtual environment with the pip whose parts it uses:
`python take_wheel_files.py REQUIREMENT PLATFORM PYTHON PATTERN FOLDER`. Exit code 3: the index
serves whole files only.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from pip._internal.commands import create_command
from pip._internal.network.lazy_wheel import HTTPRangeRequestUnsupported, LazyZipOverHTTP

WHOLE_FILES_ONLY = 3


def address(requirement: str, platform: str, python: str) -> str:
    """Return where the wheel lies, as pip finds it; only its metadata are downloaded."""
    words = ["install", "--dry-run", "--quiet", "--report=-", "--no-deps", "--retries=1"]
    words += ["--only-binary=:all:", "--ignore-installed", "--disable-pip-version-check"]
    words += [f"--platform={platform}", f"--python-version={python}", "--target=nowhere"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, requirement], stdout=subprocess.PIPE, check=True
    )
    (found,) = json.loads(done.stdout)["install"]
    return str(found["download_info"]["url"])


def take(url: str, pattern: str, folder: Path) -> None:
    """Write the wheel's files whose names match; certificates and proxies are pip's own."""
    pip = create_command("install")
    with pip.main_context():
        session = pip._build_session(pip.parse_args(["--retries=1", url])[0], retries=1)
        with zipfile.ZipFile(LazyZipOverHTTP(url, session)) as wheel:
            for name in wheel.namelist():
                if re.fullmatch(pattern, name):
                    wheel.extract(name, folder)


try:
    take(address(*sys.argv[1:4]), sys.argv[4], Path(sys.argv[5]))
except HTTPRangeRequestUnsupported:
    sys.exit(WHOLE_FILES_ONLY)
