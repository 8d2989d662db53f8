from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elastio_testbed.cli import main
from elastio_testbed.files import json_text, write_or_print
from elastio_testbed.hypervisor import choice
from elastio_testbed.hypervisor.qemu.stored import VARIABLE, is_wanted
from elastio_testbed.tables import all_tables

from .documents import document

PAGE = "# Page\n<!-- results: cm1 -->\nold\n<!-- end: cm1 -->\nkept\n"


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize(("options", "wanted"), [([], True), (["--no-stored-state"], False)])
def test_guests_resume_unless_the_command_says_that_they_boot(
    options: list[str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "yes")
    assert invoke("faults", "--list", *options).exit_code == 0
    assert is_wanted() is wanted


@pytest.mark.parametrize(("options", "name"), [([], "uml"), (["--hypervisor", "qemu"], "qemu")])
def test_guests_are_on_what_the_command_says_else_on_what_the_environment_does(
    options: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(choice.VARIABLE, "uml")
    assert invoke("faults", "--list", *options).exit_code == 0
    assert choice.chosen_hypervisor() == name
    assert invoke("faults", "--list", "--hypervisor", "xen").exit_code == 2


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    path.write_text(json_text(document()))
    return path


def test_the_file_of_a_result_is_the_document(result: Path) -> None:
    assert json.loads(result.read_text()) == document()


def test_tables_are_printed(result: Path) -> None:
    done = invoke("tables", result)
    assert done.exit_code == 0
    assert "#### Completion" in done.output


def test_tables_are_written_between_the_placeholders_of_a_page(result: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert invoke("tables", result, "--into", page).exit_code == 0
    once = page.read_text()
    assert once.startswith("# Page\n<!-- results: cm1 -->\n### `cm1` at scale 1")
    assert once.endswith("\n<!-- end: cm1 -->\nkept\n")
    assert "old" not in once
    assert invoke("tables", result, "--into", page).exit_code == 0
    assert page.read_text() == once


@pytest.mark.parametrize("text", ["empty", "<!-- results: cm1 --> no end", "<!-- end: cm1 --><!-- results: cm1 -->"])
def test_a_page_without_placeholders_is_not_changed(text: str, result: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert invoke("tables", result, "--into", page).exit_code == 1
    assert page.read_text() == text


@pytest.mark.parametrize("text", ["{", "[1]", "{}"])
def test_a_file_that_is_not_a_result_is_named_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    done = invoke("tables", path)
    assert done.exit_code == 1
    assert len(done.output.splitlines()) == 1
    assert str(path) in done.output


def test_a_stored_result_is_rendered_to_a_page_that_loads_nothing(result: Path, tmp_path: Path) -> None:
    page = tmp_path / "made" / "page.html"
    assert invoke("render", result, "--html", page).exit_code == 0
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert all(f"<h2>{table.title}</h2>" in text for table in all_tables(document()))
    assert text.count("<svg") == 1
    assert "A processor &lt;at&gt; 3 GHz" in text
    assert re.findall(r"""(?:src|href|data)=["'][^#]|<script|@import|url\([^#]""", text) == []


def test_a_result_that_was_stored_without_a_picture_is_rendered_to_a_page(tmp_path: Path) -> None:
    older = document()
    del older["picture"]
    (tmp_path / "older.json").write_text(json.dumps(older))
    assert invoke("render", tmp_path / "older.json", "--html", tmp_path / "page.html").exit_code == 0
    assert "<svg" not in (tmp_path / "page.html").read_text()


def test_the_picture_of_a_stored_result_is_drawn_as_a_file(result: Path, tmp_path: Path) -> None:
    assert invoke("render", result, "--png", tmp_path / "made" / "picture.png").exit_code == 0
    assert (tmp_path / "made" / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_text_of_a_result_is_drawn_as_it_is(tmp_path: Path) -> None:
    """A result is a file: its texts are no mathematics of matplotlib, and no markup of the page."""
    made = {**document(), "accelerator": "$x^_{$ \x1b<script>"}
    path = tmp_path / "made.json"
    path.write_text(json.dumps(made))
    assert invoke("render", path, "--html", tmp_path / "page.html", "--png", tmp_path / "p.png").exit_code == 0
    text = (tmp_path / "page.html").read_text()
    assert "($x^_{$ ?&lt;script&gt;)" in text
    assert "<script" not in text


@pytest.mark.parametrize("option", ["--scale", "--bandwidth", "--max-time"])
@pytest.mark.parametrize("value", ["nan", "inf", "0"])
def test_an_invalid_number_is_a_usage_error(option: str, value: str) -> None:
    assert invoke("predict", "bonnie", option, value).exit_code == 2


@pytest.mark.parametrize("option", ["--json", "--profile"])
def test_a_file_that_cannot_be_written_is_rejected_before_anything_is_run(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "result.json"
    done = invoke("predict", "bonnie", option, path)
    assert done.exit_code == 1
    assert str(path) in done.output


def test_a_file_that_was_checked_is_not_left_behind(tmp_path: Path) -> None:
    done = invoke("predict", "bonnie", "--json", tmp_path / "out" / "result.json")
    assert done.exit_code == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_a_result_that_cannot_be_written_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    write_or_print(tmp_path / "file" / "result.json", '{"setups": {}}')
    assert '{"setups": {}}' in capsys.readouterr().err
