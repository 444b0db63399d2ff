EXPECTED = {"core": "core 2.0", "more": "more of core 2.0", "data": "data", "version": "2.0"}


def use() -> dict[str, str]:
    """Use the members of a workspace: what they say, their data, what they are called."""
    from importlib import metadata, resources

    import packed_core
    import packed_more

    return {
        "core": packed_core.say(),
        "more": packed_more.say(),
        "data": resources.files("packed_core").joinpath("data.txt").read_text().strip(),
        "version": metadata.version("packed-core"),
    }
