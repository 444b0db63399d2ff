"""``agentix doctor``: what building and running need of this machine, and how it is."""

from __future__ import annotations

from agentix.doctor.checks import every_check
from agentix.doctor.examination import Check, Entry, Report, examine

__all__ = ["Check", "Entry", "Report", "every_check", "examine"]
