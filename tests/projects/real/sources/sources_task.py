EXPECTED = {"docopt": "{'<x>': '1'}", "markupsafe": "&lt; native", "yaml": "[1, 2]"}


def use() -> dict[str, str]:
    """Use what came as a source archive: one in Python, two with parts in C."""
    import docopt
    import markupsafe
    import yaml
    from markupsafe import _speedups

    native = "native" if _speedups.__file__.endswith(".so") else "slow"
    return {
        "docopt": str(dict(docopt.docopt("Usage: x <x>", ["1"]))),
        "markupsafe": f"{markupsafe.escape('<')} {native}",
        "yaml": str(yaml.safe_load("[1, 2]")),
    }
