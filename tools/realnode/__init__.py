# SPDX-License-Identifier: Apache-2.0
"""Nodes that run containers, and the images of their pods, on one Linux machine without an engine.

Rule: a tool of this repository, which imports `muster.local`; no module of the package imports it.
"""
