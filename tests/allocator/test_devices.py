# SPDX-License-Identifier: Apache-2.0
"""Which DeviceClasses are read, and when."""

import asyncio

import pytest

from muster.allocator import devices
from muster.allocator.devices import DeviceResources, resources_of
from muster.kube.client import ApiError


def device_class(name, **spec):
    """Return a DeviceClass."""
    return {"metadata": {"name": name}, "spec": spec}


def test_resources_of_classes_are_their_extended_resources():
    """Each class has one by its name, and may have another."""
    items = [device_class("gpu", extendedResourceName="example.com/gpu"), device_class("nic")]
    assert resources_of({"items": items}) == {
        "deviceclass.resource.kubernetes.io/gpu",
        "example.com/gpu",
        "deviceclass.resource.kubernetes.io/nic",
    }


@pytest.mark.parametrize(
    "listed", [{}, {"items": None}, {"items": [5, {"spec": {"extendedResourceName": 5}}]}]
)
def test_unreadable_classes_offer_nothing_else(listed):
    """No document raises an error."""
    assert resources_of(listed) <= {"deviceclass.resource.kubernetes.io/"}


class Server:
    """Lists DeviceClasses, or raises `error`."""

    def __init__(self, *answers):
        """Begin with the answers, the last of which stays."""
        self.answers, self.paths = list(answers), []

    async def get(self, path):
        """Return the next answer."""
        self.paths.append(path)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"items": answer}


GPU = device_class("gpu", extendedResourceName="example.com/gpu")
NOT_SERVED = ApiError(404, "NotFound", "the server could not find the requested resource", None)


async def test_classes_are_listed_only_while_a_gang_needs_them(monkeypatch):
    """A change is reported once."""
    monkeypatch.setattr(devices, "PERIOD", 0.01)
    reported = []
    server = Server([], [GPU])
    read = DeviceResources(server, lambda names: reported.append(sorted(names)))
    read.want(wanted=False)
    await asyncio.sleep(0.03)
    assert server.paths == []
    read.want(wanted=True)
    while len(server.paths) < 4:  # noqa: ASYNC110 -- nothing reports a list without changes
        await asyncio.sleep(0.01)
    read.want(wanted=False)
    await asyncio.sleep(0.03)
    count = len(server.paths)
    await asyncio.sleep(0.03)
    assert len(server.paths) == count
    assert set(server.paths) == {"/apis/resource.k8s.io/v1/deviceclasses"}
    assert reported == [["deviceclass.resource.kubernetes.io/gpu", "example.com/gpu"]]


@pytest.mark.parametrize(
    "error", [NOT_SERVED, ApiError(403, "Forbidden", "no", None), TimeoutError()]
)
async def test_classes_that_cannot_be_listed_offer_nothing(error):
    """Kubernetes before 1.34 does not serve them."""
    reported = []
    read = DeviceResources(Server(error), reported.append)
    assert await read._list() == frozenset()
    assert reported == []
