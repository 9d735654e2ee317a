# SPDX-License-Identifier: Apache-2.0
"""The read-only page of running and waiting gangs, nodes and queues.

What it shows is made by `allocator.view` of what the allocator's last cycle saw; `runtime` serves
it beside the operator, `commands` of a cluster or of a snapshot.
"""
