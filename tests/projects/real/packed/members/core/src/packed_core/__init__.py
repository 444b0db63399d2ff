from importlib.metadata import version


def say() -> str:
    return f"core {version('packed-core')}"
