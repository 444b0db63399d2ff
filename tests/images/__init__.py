"""Task images for tests, made from Debian packages without a registry.

``image(name)`` gives one as a root file system and a configuration; :mod:`images.archives`
writes it as a plain tar, a docker-archive or an OCI layout.
"""

from __future__ import annotations

from images.build import build, cache_root
from images.config import ImageConfig, TaskImage
from images.recipes import RECIPES, Recipe, image

__all__ = ["RECIPES", "ImageConfig", "Recipe", "TaskImage", "build", "cache_root", "image"]
