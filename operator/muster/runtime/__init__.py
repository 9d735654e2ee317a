# SPDX-License-Identifier: Apache-2.0
"""The only I/O: watches the API server, calls a core, carries out what it returned."""
