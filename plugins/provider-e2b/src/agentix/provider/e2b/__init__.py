"""Sandboxes on E2B: a stub, which checks its configuration and makes none yet.

It is here so that the name is taken by what it will be, its configuration can be written down and
checked today, and a program that names it is told what is wrong in one line. ``create``, ``get``,
``delete`` and ``agentix deploy e2b`` look at the configuration first, and say what it lacks; then
they raise :class:`NotYet`, which is a ``ProviderError`` and a ``NotImplementedError``. Nothing is
ever sent to the service.

The configuration is what E2B's own tools take, and where it is not given it comes from the same
environment variables:

===========  ============  =====================================================
``api_key``  E2B_API_KEY   the secret; never shown in a ``repr`` or an error
``domain``   E2B_DOMAIN    where the service answers: a name, without a scheme
===========  ============  =====================================================

Example::

    provider = E2bProviderConfig(api_key=key).to_provider()

What a real one has to do, beyond what every provider does: make the task image and the bundle a
template of the service once, by their digests (it implements ``deploy_bundle`` for that), since
its machines mount nothing of this one, and reach the runtime through the port that the service
forwards, with the sandbox's own secret. :mod:`agentix.provider.kit` has what the rest is built
from.
"""

from __future__ import annotations

from agentix.provider.e2b.config import E2bProviderConfig
from agentix.provider.e2b.provider import E2bProvider
from agentix.provider.kit import NotYet

__all__ = ["E2bProvider", "E2bProviderConfig", "NotYet"]
