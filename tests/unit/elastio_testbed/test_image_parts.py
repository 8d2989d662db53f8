"""Steps of the image build that need neither a Debian root nor a network."""

import subprocess
from pathlib import Path

import pytest

from elastio_testbed.image.build import ROOT_LABEL, make_filesystem
from elastio_testbed.image.package import as_release
from elastio_testbed.image.tools import ImageError, run


@pytest.mark.runs_programs
@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["sh", "-c", "echo disk is full >&2; exit 3"], "disk is full"),
        (["no-such-program"], "no-such-program"),
        (["sleep", "60"], "sleep"),
    ],
    ids=["failed", "missing", "hangs"],
)
def test_a_program_that_does_not_succeed_in_time_is_an_error_with_its_output(argv: list[str], said: str) -> None:
    with pytest.raises(ImageError) as caught:
        run(argv, timeout_s=1)
    assert said in str(caught.value)


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


@pytest.mark.runs_programs
def test_a_package_as_another_release_says_so_everywhere(tmp_path: Path) -> None:
    tree, deb = tmp_path / "tree", tmp_path / "now.deb"
    module = tree / "usr/share/elastio/elastio/__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text('"""What it does."""\n\n__version__ = "9.9.9"\n')
    (tree / "DEBIAN").mkdir()
    control = "Package: elastio\nVersion: 9.9.9+git-1\nArchitecture: all\nMaintainer: n <n@n.invalid>\nDescription: d\n"
    (tree / "DEBIAN/control").write_text(control)
    run(["dpkg-deb", "--build", str(tree), str(deb)], timeout_s=60)
    older = as_release(deb, "0.0.9", tmp_path / "older")
    assert run(["dpkg-deb", "--field", str(older), "Version"], timeout_s=60) == "0.0.9-1\n"
    unpacked = tmp_path / "unpacked"
    run(["dpkg-deb", "--extract", str(older), str(unpacked)], timeout_s=60)
    text = (unpacked / module.relative_to(tree)).read_text()
    assert text == '"""What it does."""\n\n__version__ = "0.0.9"\n'
    module.write_text("")
    run(["dpkg-deb", "--build", str(tree), str(deb)], timeout_s=60)
    with pytest.raises(ImageError):
        as_release(deb, "0.0.9", tmp_path / "again")
