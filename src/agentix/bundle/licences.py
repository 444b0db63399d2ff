"""Names of licences, as wheels, Debian and npm write them, turned into SPDX's where that is safe.

A name that may mean several licences ("BSD License") stays as it is: nothing is guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

if TYPE_CHECKING:
    from collections.abc import Sequence

_APPROVED = "License :: OSI Approved :: "
# Classifiers (without their prefix) and names in common use, in small letters.
_COMMON = {
    "academic free license (afl)": "AFL-3.0",
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "boost software license 1.0 (bsl-1.0)": "BSL-1.0",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd 2-clause": "BSD-2-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd-3-clause license": "BSD-3-Clause",
    "bsd 3 clause": "BSD-3-Clause",
    "cc0": "CC0-1.0",
    "cc0 1.0 universal (cc0 1.0) public domain dedication": "CC0-1.0",
    "expat": "MIT",
    "expat license": "MIT",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mit no attribution license (mit-0)": "MIT-0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "mpl 2.0": "MPL-2.0",
    "mpl-2": "MPL-2.0",
    "new bsd license": "BSD-3-Clause",
    "psf license": "PSF-2.0",
    "python": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "the mit license": "MIT",
    "the unlicense (unlicense)": "Unlicense",
    "zlib/libpng license": "Zlib",
    # Debian's, where they differ by more than a ".0".
    "artistic": "Artistic-1.0",
    "bsl": "BSL-1.0",
    "gpl": "GPL-1.0-or-later",
    "lgpl": "LGPL-2.0-or-later",
    "gfdl-niv-1.3+": "GFDL-1.3-no-invariants-or-later",
    "gfdl-niv-1.3": "GFDL-1.3-no-invariants-only",
}
# "GPL-2+", "LGPL-2.1", "GPLv3+", "GFDL-1.3+", "(LGPLv3+)" at the end of a classifier
_GNU = re.compile(
    r"(?:^|.*\()(A?GPL|LGPL|GFDL)(?:-|v| v)(\d)(?:\.(\d))?(\+|-or-later)?\)?", re.IGNORECASE
)
_WORDS = {"and": "AND", "or": "OR"}


def spdx(name: str) -> str | None:
    """Return the SPDX expression that *name* means; None where that is not certain."""
    short = name.removeprefix(_APPROVED).strip()
    known = _COMMON.get(short.lower()) or _gnu(short)
    if known is not None:
        return known
    parts = re.split(r" (and|or) ", short)
    if len(parts) > 1:
        meant = [_WORDS.get(part) or spdx(part) for part in parts]
        if None in meant or len(set(meant[1::2])) > 1:
            return _canonical(short)
        return " ".join(str(word) for word in meant)
    return _canonical(short)


def expression(names: Sequence[str]) -> str | None:
    """Return one SPDX expression for all of *names* together; None unless each is certain."""
    meant = list(dict.fromkeys(spdx(name) for name in names))
    if not meant or None in meant:
        return None
    if len(meant) == 1:
        return meant[0]
    return " AND ".join(f"({part})" if " " in str(part) else str(part) for part in meant)


def _gnu(name: str) -> str | None:
    found = _GNU.fullmatch(name)
    if found is None:
        return None
    family, major, minor, later = found.groups()
    ending = "or-later" if later else "only"
    return _canonical(f"{family.upper()}-{major}.{minor or 0}-{ending}")


def _canonical(text: str) -> str | None:
    try:
        return str(canonicalize_license_expression(text))
    except InvalidLicenseExpression:
        return None
