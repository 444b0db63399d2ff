from __future__ import annotations

import pytest

from agentix.errors import FetchError, LockError
from agentix.ungrouped import ungrouped


def raised(error: BaseException) -> BaseException:
    with pytest.raises(BaseException) as caught, ungrouped():  # noqa: PT011
        raise error
    return caught.value


def test_the_error_comes_alone_however_deep_its_group_is() -> None:
    error = LockError("no such package")
    inner = ExceptionGroup("tasks", [error, LockError("another")])
    assert raised(ExceptionGroup("tasks", [inner])) is error
    assert error.__suppress_context__


@pytest.mark.parametrize("error", [FetchError("no cache"), OSError(28, "No space left on device")])
def test_any_error_that_a_user_can_act_on_comes_alone(error: Exception) -> None:
    assert raised(ExceptionGroup("tasks", [error, LockError("another")])) is error


def test_a_group_with_anything_else_in_it_stays_whole() -> None:
    group = ExceptionGroup("tasks", [LockError("no"), ValueError("a defect")])
    assert raised(group) is group


def test_what_is_no_group_passes() -> None:
    error = LockError("plain")
    assert raised(error) is error
