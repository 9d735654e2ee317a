# SPDX-License-Identifier: Apache-2.0
"""Muster: distributed training jobs on Kubernetes, with a gang scheduler inside."""
