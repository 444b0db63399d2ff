"""Sandboxes on bubblewrap: no daemon, no root, nothing to install but this package.

What a sandbox sees is one user: the image's. Every file that belongs to whoever runs the host
program appears as that user's, every other as nobody's. The image stays as it is: what a task
writes goes to memory and is gone with the sandbox.
"""

from __future__ import annotations

from agentix.provider.bubblewrap.config import BubblewrapProviderConfig
from agentix.provider.bubblewrap.provider import BubblewrapProvider

__all__ = ["BubblewrapProvider", "BubblewrapProviderConfig"]
