"""What is told of an error that ended a task of Spark's is what was raised, and no line of code (T4-C3)."""

from __future__ import annotations

import pytest

from safewrite.engine.spark import raised_in

TRACE = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "udf.py", line 3, in boom
    raise KeyError("inner")
KeyError: 'inner'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "udf.py", line 5, in boom
    except KeyError as error: raise ValueError("amount is negative") from error
ValueError: amount is negative

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:572)"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRACE, "ValueError: amount is negative"),
        (
            "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018",
            "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018",
        ),
        (
            "Job aborted\njava.lang.OutOfMemoryError: heap\n\tat org.apache.spark.X",
            "java.lang.OutOfMemoryError: heap",
        ),
        ("", ""),
    ],
)
def test_what_was_raised_last_is_told(text: str, said: str) -> None:
    assert raised_in(text) == said
