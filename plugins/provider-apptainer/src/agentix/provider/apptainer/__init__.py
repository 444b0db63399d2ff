"""Sandboxes on Apptainer: no daemon and no root, as clusters have it installed.

``image`` is a SIF file, the folder of a root file system, an archive by ``docker save`` or
``skopeo``, or what a registry calls it (``debian:12``, ``docker://registry:5000/x@sha256:…``),
which skopeo fetches. Archives and what was fetched are unpacked once into the cache; a SIF file is
mounted as it is, by FUSE. Where there is no skopeo, ``apptainer pull task.sif docker://…`` makes a
SIF file; where there is no FUSE, ``apptainer build --sandbox FOLDER task.sif`` makes a folder of
it.

What is run is the bundle's runtime: entrypoint, command and ``%runscript`` of the image are not.
Its file system stays as it is: what a task writes goes to memory and is gone with the sandbox.
Nothing of the host is in there: not its environment, its home and temporary folders, nor its
working folder.

Unlike container engines, Apptainer cannot become the image's user. A sandbox runs as whoever calls,
or, with ``fakeroot``, as that user under the name of root; every other owner of a file is nobody.
In a SIF file that is somebody else than an ordinary caller, who then may not write where only root
may; images that were unpacked belong to the caller.
"""

from __future__ import annotations

from agentix.provider.apptainer.config import ApptainerProviderConfig
from agentix.provider.apptainer.provider import ApptainerProvider

__all__ = ["ApptainerProvider", "ApptainerProviderConfig"]
