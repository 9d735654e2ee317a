# SPDX-License-Identifier: Apache-2.0
"""The table of plugins and the modules beside it."""

import pkgutil

from muster.scheduler import plugins


def test_every_module_has_a_row():
    """A plugin is a module and a row of its name."""
    assert {module.name for module in pkgutil.iter_modules(plugins.__path__)} == set(
        plugins.PLUGINS
    )
