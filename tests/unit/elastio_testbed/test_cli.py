from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elastio_testbed.cli import main, to_json_text, write_or_print

from .documents import document

PAGE = "# Page\n<!-- results: cm1 -->\n<!-- end: cm1 -->\n"


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    path.write_text(to_json_text(document()))
    return path


def test_the_file_of_a_result_is_the_document(result: Path) -> None:
    assert json.loads(result.read_text()) == document()


def test_tables_are_printed(result: Path) -> None:
    done = invoke("tables", result)
    assert done.exit_code == 0
    assert "#### Completion" in done.output


def test_tables_are_written_into_the_marked_part_of_a_page(result: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert invoke("tables", result, "--into", page).exit_code == 0
    assert page.read_text().startswith("# Page\n<!-- results: cm1 -->\n### `cm1` at scale 1")
    assert page.read_text().endswith("<!-- end: cm1 -->\n")


def test_a_page_without_marks_is_left_alone(result: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks")
    done = invoke("tables", result, "--into", page)
    assert done.exit_code == 1
    assert "nothing was changed" in done.output
    assert page.read_text() == "no marks"


@pytest.mark.parametrize(
    ("text", "said"), [("{", "is not JSON"), ("[1]", "is not a result"), ("{}", "is not a result")]
)
def test_a_file_that_is_no_result_is_named_in_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    done = invoke("tables", path)
    assert done.exit_code == 1
    assert said in done.output
    assert str(path) in done.output


def test_the_page_of_a_result_is_written_anew(result: Path, tmp_path: Path) -> None:
    page = tmp_path / "made" / "page.html"
    assert invoke("render", result, "--html", page).exit_code == 0
    assert page.read_text().startswith("<!doctype html>")
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize("option", ["--scale", "--bandwidth", "--max-time"])
@pytest.mark.parametrize("value", ["nan", "inf", "0"])
def test_a_number_that_means_nothing_is_wrong_usage(option: str, value: str) -> None:
    assert invoke("predict", "bonnie", option, value).exit_code == 2


@pytest.mark.parametrize("option", ["--json", "--profile"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_run(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "result.json"
    done = invoke("predict", "bonnie", option, path)
    assert done.exit_code == 1
    assert f"{path} cannot be written: " in done.output
    assert "nothing was run" in done.output


def test_trying_a_file_leaves_nothing(tmp_path: Path) -> None:
    done = invoke("predict", "bonnie", "--json", tmp_path / "out" / "result.json")
    assert "bonnie is no application" in done.output
    assert list((tmp_path / "out").iterdir()) == []


def test_a_result_that_cannot_be_written_any_more_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    write_or_print(tmp_path / "file" / "result.json", '{"setups": {}}')
    assert "result.json cannot be written: " in (said := capsys.readouterr().err)
    assert '{"setups": {}}' in said
