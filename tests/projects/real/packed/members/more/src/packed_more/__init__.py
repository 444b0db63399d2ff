import packed_core


def say() -> str:
    return f"more of {packed_core.say()}"
