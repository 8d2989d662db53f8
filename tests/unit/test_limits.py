from pathlib import Path

from tests.limits import FILE_LINES, FUNCTION_LINES, too_long


def test_a_file_and_a_function_may_be_as_long_as_their_limit_and_no_longer() -> None:
    function = "def f():\n" + "    pass\n" * (FUNCTION_LINES - 1)
    whole = function + "\n" * (FILE_LINES - FUNCTION_LINES)
    assert list(too_long(Path("a.py"), whole)) == []
    assert len(list(too_long(Path("a.py"), whole + "\n"))) == 1
    assert len(list(too_long(Path("a.py"), function + "    pass\n"))) == 1
