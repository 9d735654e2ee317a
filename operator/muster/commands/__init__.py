# SPDX-License-Identifier: Apache-2.0
"""The cores asked without writing anything: explain, simulate, snapshot, render, convert.

Rule: the same way to an answer as the operator's, from a live cluster or from a file; nothing is
written to an API server. Only `cli` is above; `runtime` and what is below it are used.
"""
