"""A name that went is refused with what to use now."""

import importlib

import pytest

from het_tf.python import cli, gone


def refusal(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a name that is used; "": the name is there, and the test fails."""
    if name.startswith("het "):
        words = name.split()[1:]
        with pytest.raises(SystemExit) as ended:
            cli.parser(words[0]).parse_args([*words, "--none"])
        assert ended.value.code == 2
        message = capsys.readouterr().err
        return message if "invalid choice" in message else ""
    module, _, attribute = name.rpartition(".")
    try:
        getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", gone.GONE)
def test_a_name_that_went_says_what_to_use(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"; use {gone.GONE[name]}" in " ".join(refusal(name, capsys).split())


def test_a_name_that_never_was_gets_no_advice(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("het_tf.nothing", "het_tf.keras.Nothing", "het nothing", "het ps nothing"):
        message = refusal(name, capsys)
        assert message and "; use" not in message
