"""Sandboxes on Daytona: a stub, which checks its configuration and makes none yet.

It is here so that the name is taken by what it will be, its configuration can be written down and
checked today, and a program that names it is told what is wrong in one line. ``create``, ``get``,
``delete`` and ``agentix deploy daytona`` look at the configuration first, and say what it lacks;
then they raise :class:`NotYet`, which is a ``ProviderError`` and a ``NotImplementedError``. Nothing
is ever sent to the service.

The configuration is what Daytona's own tools take, and where it is not given it comes from the same
environment variables:

==============  ==================  ==================================================
``api_key``     DAYTONA_API_KEY     the secret; never shown in a ``repr`` or an error
``api_url``     DAYTONA_API_URL     where the service answers, ``https`` only
``target``      DAYTONA_TARGET      the region in which sandboxes run; the service's own
                                    choice when there is none
==============  ==================  ==================================================

Example::

    provider = DaytonaProviderConfig(api_key=key, target="eu").to_provider()

What a real one has to do, beyond what every provider does: bring a bundle to the service once, by
its digest, into a volume that its sandboxes mount read-only at ``/nix`` (it implements
``deploy_bundle`` for that), and reach the runtime through the service's own channel, since there is
no socket that both sides see. :mod:`agentix.provider.kit` has what the rest is built from.
"""

from __future__ import annotations

from agentix.provider.daytona.config import DaytonaProviderConfig
from agentix.provider.daytona.provider import DaytonaProvider
from agentix.provider.kit import NotYet

__all__ = ["DaytonaProvider", "DaytonaProviderConfig", "NotYet"]
