"""Providers: where sandboxes come from. Plugins add their backends as modules beside this one."""

from __future__ import annotations

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
