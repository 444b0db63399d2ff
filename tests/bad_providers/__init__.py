"""Providers that the conformance suite is tested with: one that is right, many that are not.

The right one is as plain as can be: it runs a bundle on this machine, where Nix has built it, and
isolates nothing. Each of the others changes one thing in it.
"""

from __future__ import annotations
