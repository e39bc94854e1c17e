"""What `make release` and `make release-check` refuse; that they work is `make release-check` itself."""

import zipfile

import pytest
from tools_lib import script


@pytest.fixture
def check():
    return script("tools/release_check")


def wheel_of(folder, names, mode=0o755):
    path = folder / "het_tf-1.0-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            file = zipfile.ZipInfo(name)
            file.external_attr = mode << 16
            archive.writestr(file, "")
    return path


def whole(check):
    libraries = [f"het_tf/lib/{level}{library}" for level in check.LEVELS for library in check.LIBRARIES]
    return [*libraries, "het_tf/__init__.py", "het_tf-1.0.dist-info/sboms/het_tf.cdx.json"]


def test_contents_of_a_wheel(check, tmp_path):
    """Defect: CMake on Debian installs libraries as 0644, and no server loaded the wheel's module."""
    check.check_contents(wheel_of(tmp_path, whole(check)))
    for names, mode, why in (
        (whole(check)[1:], 0o755, "has no het_tf/lib/libhet_tf.so"),
        ([*whole(check), "het_tf/core/base/status.h"], 0o755, "holds .*status.h"),
        ([*whole(check), "tests/x.py"], 0o755, "not het_tf alone"),
        (whole(check)[:-1], 0o755, "has no SBOM"),
        (whole(check), 0o644, "is not executable"),
    ):
        with pytest.raises(SystemExit, match=why):
            check.check_contents(wheel_of(tmp_path, names, mode))


def test_readme_has_one_program(check):
    assert "het_tf.keras.Embedding" in check.readme_program()


def test_the_recipe_is_one_that_can_be_followed():
    container = script("tools/container")
    assert {word for word, _ in container.instructions()} <= set(container.KNOWN)
    assert container.command()[:2] == ["valkey-server", "/het/redis.conf"]


def test_a_version_that_is_not_ready(monkeypatch):
    release = script("tools/release")
    heading, text = release.section()
    assert heading.startswith(release.version_of_tree()) and "\n" not in heading
    assert text.startswith("Embedding tables")
    monkeypatch.setattr(release, "section", lambda: ("0.1.0 (unreleased)", "* x"))
    monkeypatch.setattr(release, "output", lambda *command: "v0.1.0\n" if "tag" in command else "?? new.py\n")
    own = release.version_of_tree()
    told = "\n".join(release.unready("9.9.9"))
    assert f"_version.py says {own}, not 9.9.9" in told and "begins with '## 0.1.0 (unreleased)'" in told
    assert "1 files are not committed, such as new.py" in told and "there is a tag v9.9.9 already" in told
    monkeypatch.setattr(release, "section", lambda: (f"{own} (2026-12-01)", "* x"))
    monkeypatch.setattr(release, "output", lambda *command: "")
    assert release.unready(own) == []
