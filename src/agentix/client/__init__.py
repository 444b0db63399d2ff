"""Call functions inside a sandbox whose runtime is known by its URL."""

from agentix.client.health import Health
from agentix.client.result import Failed, Ok, Result
from agentix.client.runtime import RuntimeClient

__all__ = ["Failed", "Health", "Ok", "Result", "RuntimeClient"]
