from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from agentix.validation import first_fault


class Model(BaseModel):
    sizes: list[int] = []
    name: str = ""

    @field_validator("name")
    @classmethod
    def _refuse(cls, value: str) -> str:
        raise ValueError(f"is not\na name: {value}")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"sizes": [1, "x"]}', "sizes.1: Input should be a valid integer"),
        ('{"name": "\\u001b"}', "name: is not\\na name: \\x1b"),
        ("{", "Invalid JSON: EOF while parsing"),
    ],
)
def test_a_fault_is_one_harmless_line_that_begins_with_its_key(text: str, fault: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate_json(text)
    assert first_fault(caught.value).startswith(fault)
