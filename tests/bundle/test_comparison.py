"""Why two bundles differ: the packages, the store paths, and which of those is to blame."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentix.bundle.comparison import Change, Comparison, compare
from agentix.bundle.view import look_into
from agentix.errors import BundleError
from bundle.handmade import INFO, OLD, PYTHON, Bundle, Link, Workshop, root_tree, store_name

if TYPE_CHECKING:
    from pathlib import Path


def trees(numpy: str = "numpy-1.26.4", content: bytes = b"import x\n") -> dict[str, Any]:
    """A wheel, and an environment with a link to it and a file that mentions it."""
    path = f"/nix/store/{store_name(numpy)}"
    return {
        numpy: {"lib": {"numpy.py": content}},
        f"environment of {numpy}": {"numpy": Link(f"{path}/lib"), "script": f"#!{path}\n".encode()},
    }


def environment(numpy: str) -> str:
    return store_name(f"environment of {numpy}")[:32] + "-environment"


@pytest.fixture
def made(workshop: Workshop, tmp_path: Path) -> Any:
    """Write a bundle of trees, given under their full store names, and look into it."""
    count = 0

    def make(paths: dict[str, Any], info: dict[str, Any] = INFO, root: Any = None) -> Path:
        nonlocal count
        count += 1
        bundle = Shop(workshop).bundle(paths, root_tree(info) if root is None else root)
        return bundle.write(tmp_path / f"{count}.tar").path

    return make


class Shop:
    """A workshop whose store names are told: the same name may have another hash."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop

    def bundle(self, paths: dict[str, Any], root: Any) -> Bundle:
        import tempfile
        from hashlib import sha256
        from pathlib import Path

        from agentix.nix import StorePath
        from bundle.handmade import nar, plant

        store = Path(tempfile.mkdtemp(dir=self._workshop.folder)) / "nix/store"
        store.mkdir(parents=True)
        bundle = Bundle(store, {})
        for name, tree in {**paths, store_name("bundle"): root}.items():
            plant(store / name, tree)
            data = nar(tree)
            bundle.closure.append(StorePath(store / name, sha256(data).hexdigest(), len(data)))
        return bundle


def named(word: str, name: str) -> str:
    """A store name with the hash of *word*."""
    return f"{store_name(word)[:32]}-{name}"


def found(old: Path, new: Path) -> Comparison:
    with look_into(old) as one, look_into(new) as other:
        return compare(one, other)


def test_a_bundle_is_the_same_as_itself_wherever_it_is(made: Any) -> None:
    paths = {named("a", "numpy-1.0"): {"x": b"1"}}
    comparison = found(made(paths), made(paths))
    assert comparison.same
    assert (comparison.changes, comparison.paths) == ((), ())


def test_packages_that_came_went_or_changed_are_told_first(made: Any) -> None:
    packages = INFO["packages"]
    new = INFO | {
        "python": "3.13.5",
        "packages": [
            packages[0] | {"built": "e" * 64},
            packages[1] | {"version": "1.2.0"},
            {"name": "requests", "version": "2.32", "sha256": "f" * 64},
        ],
        "tools": [],
    }
    assert found(made({}), made({}, new)).changes == (
        Change("bundle", "python", "3.11.2", "3.13.5"),
        Change("package", "hello-world", "0.1.0", "0.1.0"),
        Change("package", "msgpack", "1.1.0", "1.2.0"),
        Change("package", "requests", None, "2.32"),
        Change("tool", "jq", "1.6-2.1+deb12u1", None),
    )


def test_what_an_older_format_does_not_tell_is_no_change(made: Any) -> None:
    kinds = {change.kind for change in found(made({}, OLD), made({})).changes}
    assert "base" not in kinds
    assert "tool" not in kinds


def test_a_changed_dependency_is_found_behind_all_that_only_has_another_name(made: Any) -> None:
    old_numpy, new_numpy = named("a", "numpy-1.26.4"), named("b", "numpy-2.0.1")
    old_env, new_env = named("c", "environment"), named("d", "environment")
    old_app, new_app = named("e", "app"), named("f", "app")

    def paths(numpy: str, env: str, app: str, text: bytes) -> dict[str, Any]:
        return {
            numpy: {"lib": {"numpy.py": text}},
            env: {
                "numpy": Link(f"/nix/store/{numpy}/lib"),
                "script": f"#!/nix/store/{env}".encode(),
            },
            app: {"run": f"exec /nix/store/{env}/script\n".encode()},
            named("g", "python"): PYTHON,
        }

    comparison = found(
        made(paths(old_numpy, old_env, old_app, b"import a\nv = 1\n")),
        made(paths(new_numpy, new_env, new_app, b"import a\nv = 2\n")),
    )
    by_kind = {path.new: path for path in comparison.paths}
    assert {name: path.kind for name, path in by_kind.items()} == {
        new_numpy: "changed",
        new_env: "follows",
        new_app: "follows",
    }
    (difference,) = by_kind[new_numpy].files
    assert str(difference) == "lib/numpy.py: content, line 2: 'v = 1' → 'v = 2'"
    assert by_kind[new_numpy].old == old_numpy
    assert by_kind[new_env].because == by_kind[new_app].because == (new_numpy,)


def test_paths_that_came_and_went_are_told(made: Any) -> None:
    one, other = named("a", "idna-3.7"), named("b", "requests-2.32")
    comparison = found(made({one: {"x": b""}}), made({other: {"x": b""}}))
    assert [(path.kind, path.old, path.new) for path in comparison.paths] == [
        ("removed", one, None),
        ("added", None, other),
    ]


def test_the_same_inputs_with_another_output_are_told_apart(made: Any) -> None:
    name = named("a", "app-1.0")
    comparison = found(made({name: {"x": b"1\n"}}), made({name: {"x": b"2\n"}}))
    (path,) = comparison.paths
    assert (path.kind, path.old, path.count) == ("unlike", name, 1)
    assert str(path.files[0]) == "x: content, line 1: '1' → '2'"


def test_what_was_only_built_otherwise_is_said_to_be_the_same(made: Any) -> None:
    one, other = named("a", "app-1.0"), named("b", "app-1.0")
    (path,) = found(made({one: {"x": b"1"}}), made({other: {"x": b"1"}})).paths
    assert (path.kind, path.count, path.because) == ("follows", 0, ())


def test_the_hashes_of_files_that_mention_a_path_are_no_cause_of_their_own(made: Any) -> None:
    def paths(python: str, wheel: str, text: bytes) -> dict[str, Any]:
        record = f"x.so,sha256={python[:10]},9\n".encode()
        return {
            python: {"lib": text},
            wheel: {
                "x.so": f"/nix/store/{python}/lib".encode(),
                "w-1.dist-info": {"RECORD": record},
            },
        }

    old, new = (named(word, "python-3.11") for word in ("a", "b"))
    one, other = (named(word, "w-1") for word in ("c", "d"))
    comparison = found(made(paths(old, one, b"1")), made(paths(new, other, b"2")))
    assert [(path.kind, path.because) for path in comparison.paths] == [
        ("changed", ()),
        ("follows", (new,)),
    ]
    alone = found(
        made({one: {"w-1.dist-info": {"RECORD": b"x,,\n"}}}),
        made({other: {"w-1.dist-info": {"RECORD": b"y,,\n"}}}),
    )
    assert [path.kind for path in alone.paths] == ["changed"]


def test_two_of_one_name_are_matched_and_a_third_is_added(made: Any) -> None:
    old = {named(word, "w-1.0"): {"x": word.encode()} for word in "ab"}
    new = {named(word, "w-2.0"): {"x": word.encode()} for word in "cde"}
    kinds = [path.kind for path in found(made(old), made(new)).paths]
    assert sorted(kinds) == ["added"] * 3 + ["removed"] * 2
    same = {named(word, "w-1.0"): {"x": word.encode()} for word in "cd"}
    assert [path.kind for path in found(made(old), made(same)).paths] == ["changed"] * 2


def test_a_damaged_tar_is_not_taken_for_the_same(made: Any) -> None:
    paths = {named("a", "app-1.0"): {"x": b"content"}}
    one, other = made(paths), made(paths)
    other.write_bytes(other.read_bytes().replace(b"content", b"Content"))
    with pytest.raises(BundleError, match="one of them is damaged"):
        found(one, other)


def test_a_difference_in_very_many_files_is_counted_and_not_kept(made: Any) -> None:
    old, new = ({f"{n:05}": word for n in range(3000)} for word in (b"1", b"2"))
    one, other = named("a", "app-1.0"), named("b", "app-1.0")
    (path,) = found(made({one: old}), made({other: new})).paths
    assert path.count == 3000
    assert len(path.files) == 1000
    assert json.dumps([str(file) for file in path.files])
