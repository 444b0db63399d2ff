"""What results may hold beyond plain values: classes that you allow, types that you register.

A class is allowed without a word where the called function's return annotation leads to it.
"""

from agentix.wire.values.allowed import allow_type
from agentix.wire.values.registered import register_type

__all__ = ["allow_type", "register_type"]
