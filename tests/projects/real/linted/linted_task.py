EXPECTED = {"program": "F401", "script": "hello\n", "module": "True"}


def hello() -> None:
    """Be the project's own console script."""
    import sys

    sys.stdout.write("hello\n")


def use() -> dict[str, str]:
    """Start a program that a wheel brings, and this project's console script."""
    import shutil
    import subprocess
    import sys

    def run(*command: str) -> str:
        options = {"input": "import os\n", "capture_output": True, "text": True, "timeout": 60}
        return subprocess.run(command, check=False, **options).stdout

    check = ("check", "--isolated", "--no-cache", "--output-format", "concise", "-")
    found = run(sys.executable, "-m", "ruff", *check)
    return {
        "program": "F401" if "F401" in found else found,
        "script": run(shutil.which("hello-task") or "hello-task"),
        "module": str("ruff" in run(sys.executable, "-m", "ruff", "version")),
    }
