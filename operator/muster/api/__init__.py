# SPDX-License-Identifier: Apache-2.0
"""Vocabulary: what users write and read of jobs, gangs and queues; models, names, quantities.

Rule: raw JSON becomes a typed value here, once, and nothing decides. What reads a document of
unknown shape never raises. Everything is above it, the cores too; below it is nothing of Muster.
`reasons` imports nothing at all, so that the scheduler, which knows no Kubernetes, can share it.
"""
