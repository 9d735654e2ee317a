# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap in which the operator publishes its policy."""

import asyncio
import os
from contextlib import asynccontextmanager

import pytest

from muster.allocator import policyfile
from muster.allocator.policyfile import PolicyFile
from muster.kube.client import ApiError
from muster.scheduler import policy
from muster.settings import Settings

SETTINGS = Settings(home="system", default_queue="team")


class Server:
    """An API server that stores what is applied; `errors` come first."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.applied, self.failed = asyncio.Queue(), asyncio.Event()

    async def apply(self, path, body, _urgency):
        """Store a body."""
        if self.errors:
            # Once the error has been handled.
            asyncio.get_running_loop().call_soon(self.failed.set)
            raise self.errors.pop(0)
        self.applied.put_nowait((path, body))


@asynccontextmanager
async def published(*errors, path=""):
    """Publish the policy; give the server and the policy file."""
    server, policies = Server(*errors), PolicyFile(path)
    task = asyncio.create_task(policyfile.publish(server, "system", policies, SETTINGS.published))
    try:
        yield server, policies
    finally:
        task.cancel()


def test_operator_without_a_namespace_publishes_nothing():
    """On a workstation the flag of the Lease names the namespace."""
    assert not Settings().policy_namespace
    assert Settings(lock_namespace="a").policy_namespace == "a"
    assert Settings(home="b", lock_namespace="a").policy_namespace == "b"


async def test_policy_is_published_in_the_namespace_of_the_operator():
    """The ConfigMap has the policy and the settings that decisions depend on."""
    async with published() as (server, _policies):
        path, body = await server.applied.get()
        assert path.startswith("/api/v1/namespaces/system/configmaps/muster-policy?")
        assert body["metadata"] == {"name": "muster-policy", "namespace": "system"}
        chosen, settings = policyfile.published(body["data"])
        assert chosen == policy.DEFAULT
        assert Settings().completed(settings) == Settings(default_queue="team")


async def test_changed_policy_is_published_again(tmp_path):
    """The operator reads a changed file in a cycle, and publishes it then."""
    file, other = tmp_path / "policy.yaml", tmp_path / "other"
    file.write_text("actions: allocate")

    async with published(path=str(file)) as (server, policies):
        await server.applied.get()
        other.write_text("actions: allocate, preempt")
        os.replace(other, file)  # noqa: PTH105 -- as the kubelet does
        policies.get()
        _, body = await server.applied.get()
        assert policyfile.published(body["data"])[0].actions == ("allocate", "preempt")


@pytest.mark.parametrize("code", [403, 404])
async def test_policy_that_may_not_be_published_is_left_until_it_changes(code, caplog):
    """Without the permission another attempt fails too, and the operator runs on."""
    async with published(ApiError(code, "Forbidden", "no", None)) as (server, policies):
        await server.failed.wait()
        policies.changed.set()
        await server.applied.get()
    assert "Could not publish ConfigMap system/muster-policy" in caplog.text
