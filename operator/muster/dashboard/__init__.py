# SPDX-License-Identifier: Apache-2.0
"""The page that shows who holds what and who waits for what: it only reads, and asks for nothing.

What it shows is made by `allocator.view` of what the allocator's last cycle saw; `runtime` serves
it beside the operator, `commands` of a cluster or of a snapshot.
"""
