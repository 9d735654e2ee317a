# SPDX-License-Identifier: Apache-2.0
"""`muster bundle` on an API server in memory, and the parts of the file that it writes."""

from __future__ import annotations

import tarfile
from unittest import mock

from muster import cli
from muster.commands import questions
from support.apiserver.read_only import Served

SECRET = "hunter2-hunter2"


class Cluster(Served):
    """Says its version, too."""

    async def get(self, path, **params):
        """Return it, the operator's Deployment, or a list."""
        if path.endswith("/deployments"):
            container = {"args": ["--gang-scheduler-name=embedded", f"--token={SECRET}"]}
            spec = {"template": {"spec": {"containers": [container]}}}
            return {
                "metadata": {"resourceVersion": "1"},
                "items": [{"metadata": {}, "spec": spec}],
            }
        return {"gitVersion": "v1"} if path == "/version" else await super().get(path, **params)


def written(file, *documents, words=()):
    """Return the code of the command on a cluster of these, and the parts of its file."""

    async def connect(*_args):
        if not documents:
            raise questions.ConfigurationError("nobody is there")
        return Cluster(*documents)

    with mock.patch.object(questions, "connect", connect):
        code = cli.main(["bundle", "-o", str(file), *words])
    with tarfile.open(file) as archive:
        found = {each.name.partition("/")[2]: each for each in archive.getmembers()}
        return code, {name: archive.extractfile(e).read().decode() for name, e in found.items()}
