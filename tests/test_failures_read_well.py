"""The suite's own promises: what a failing test shows can be read."""

from __future__ import annotations

import logging

import pytest


def test_what_the_compiler_traces_is_no_part_of_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    # Defect 39: a failing test of compiled code showed thousands of empty lines of this logger.
    logging.getLogger("torch.__trace").debug("")
    assert not caplog.records
    logging.getLogger("torch._dynamo").warning("the cache is full")
    assert [record.message for record in caplog.records] == ["the cache is full"]
