"""Steps of the image build that need neither a Debian root nor a network."""

import subprocess
from pathlib import Path

import pytest

from elastio_testbed.image.build import ROOT_LABEL, make_filesystem
from elastio_testbed.image.install import destination
from elastio_testbed.image.tools import ImageError, run


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("systemd/elastiod.service", "usr/lib/systemd/system/elastiod.service"),
        ("systemd/units/elastio.slice", "usr/lib/systemd/system/elastio.slice"),
        ("systemd/udev/69-elastio.rules", "usr/lib/udev/rules.d/69-elastio.rules"),
        ("systemd/modprobe.d/elastio.conf", "usr/lib/modprobe.d/elastio.conf"),
        ("systemd/sysusers/elastio.conf", "usr/lib/sysusers.d/elastio.conf"),
        ("systemd/elastio.tmpfiles.conf", "usr/lib/tmpfiles.d/elastio.tmpfiles.conf"),
        (
            "systemd/elastiod.service.d/50-limits.conf",
            "usr/lib/systemd/system/elastiod.service.d/50-limits.conf",
        ),
    ],
)
def test_each_kind_of_file_is_installed_in_its_directory(source: str, place: str) -> None:
    assert destination(Path(source)) == Path(place)


@pytest.mark.parametrize("source", ["systemd/README.md", "systemd/elastio.conf", "systemd/elastio.toml"])
def test_other_files_are_not_installed(source: str) -> None:
    assert destination(Path(source)) is None


@pytest.mark.runs_programs
def test_the_error_of_a_failed_program_contains_its_output() -> None:
    with pytest.raises(ImageError) as caught:
        run(["sh", "-c", "echo disk is full >&2; exit 3"], timeout_s=10)
    assert "disk is full" in str(caught.value)


@pytest.mark.runs_programs
def test_a_missing_program_is_an_error() -> None:
    with pytest.raises(ImageError):
        run(["no-such-program"], timeout_s=10)


@pytest.mark.runs_programs
def test_a_program_that_hangs_is_killed() -> None:
    with pytest.raises(ImageError):
        run(["sleep", "60"], timeout_s=0.2)


@pytest.mark.runs_programs
def test_the_file_system_holds_the_tree_under_its_label(tmp_path: Path) -> None:
    root, image = tmp_path / "root", tmp_path / "root.ext4"
    (root / "etc").mkdir(parents=True)
    (root / "etc/hostname").write_text("vm\n")
    make_filesystem(root, image)
    label = subprocess.run(["e2label", image], capture_output=True, text=True, check=True).stdout.strip()
    cat = subprocess.run(["debugfs", "-R", "cat /etc/hostname", image], capture_output=True, text=True, check=True)
    assert label == ROOT_LABEL
    assert cat.stdout == "vm\n"
    # Sparse: 4 GiB for the guest, some MB on the host.
    assert image.stat().st_size == 4 << 30
    assert image.stat().st_blocks * 512 < 200 << 20
