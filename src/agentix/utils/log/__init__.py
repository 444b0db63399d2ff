"""Logging: what sandboxes log and print goes to this program's loggers, without further ado.

In a sandbox, use :mod:`logging`. On the host, any handler will do; :func:`configure_logging` is a
convenient one. Records of a sandbox have its ``sandbox_id``; lines of its standard output and error
come from the loggers ``agentix.sandbox.stdout`` (at INFO) and ``agentix.sandbox.stderr`` (at
WARNING), and what its runtime has to say from ``agentix.sandbox``.
"""

from agentix.utils.log.configure import configure_logging

__all__ = ["configure_logging"]
