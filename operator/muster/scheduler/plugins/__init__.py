# SPDX-License-Identifier: Apache-2.0
"""One module per scheduling plugin; PLUGINS is the table."""
