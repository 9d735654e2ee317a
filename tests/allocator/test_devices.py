# SPDX-License-Identifier: Apache-2.0
"""Which resources DeviceClasses offer."""

import asyncio

import pytest

from muster.allocator import devices
from muster.allocator.devices import resources_of
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


async def reported(server, count):
    """Return what is reported of so many lists."""
    found = []
    task = asyncio.create_task(devices.follow(server, lambda names: found.append(sorted(names))))
    while len(server.paths) < count:  # noqa: ASYNC110 -- nothing reports a list without changes
        await asyncio.sleep(0.01)
    task.cancel()
    assert set(server.paths) == {"/apis/resource.k8s.io/v1/deviceclasses"}
    return found


@pytest.mark.parametrize(
    "error", [NOT_SERVED, ApiError(403, "Forbidden", "no", None), TimeoutError()]
)
async def test_change_of_the_classes_is_reported_once(monkeypatch, error):
    """A list that fails changes nothing: Kubernetes before 1.34 does not serve them."""
    monkeypatch.setattr(devices, "PERIOD", 0.01)
    server = Server(error, [], [GPU], error, [GPU])
    names = ["deviceclass.resource.kubernetes.io/gpu", "example.com/gpu"]
    assert await reported(server, 6) == [names]
