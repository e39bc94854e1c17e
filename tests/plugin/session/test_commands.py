"""The command het: help, its page, exit status, units, dates, TensorFlow's log, readers that have gone."""

import argparse
import os
import subprocess
import sys
import textwrap

import pytest
from cli_lib import het
from tools_lib import ROOT

from het_tf.python import cli, show


def start(code: str, buffered: bool = False, **streams: int) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    environment["PYTHONUNBUFFERED"] = "" if buffered else "1"
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**environment, "PYTHONPATH": f"{ROOT}:{ROOT}/tests/lib"}, text=True, **streams,
    )  # fmt: skip


def parsers(parser: argparse.ArgumentParser) -> list[tuple[argparse.ArgumentParser, str]]:
    """Each command with its summary, and all below it."""
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action._choices_actions:
                sub = action.choices[one.dest]
                found += [(sub, one.help), *parsers(sub)]
    return found


ALL = [(cli.parser(), ""), *parsers(cli.parser(*cli.GROUPS))]


def test_help_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads of `--help` are not wrapped by argparse: they were 104 to 118 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")
    for parser, _ in ALL:
        assert max(map(len, parser.format_help().splitlines())) <= 80, parser.prog


def test_the_page_has_every_command_and_exit_status() -> None:
    """Catches a command that was added, or a summary that was changed, in one of the two places."""
    page = (ROOT / "docs/commands.md").read_text()
    rows = [line.split(" | ")[:2] for line in page.splitlines() if line.startswith("| `het ")]
    told = {(of[0], of[1].removesuffix(" |")) for of in rows}
    assert told == {(f"| `{parser.prog}`", summary) for parser, summary in ALL[1:]}
    for status, text in cli.EXIT.items():
        assert f"| {status} | {text.replace('|', chr(92) + '|')} |" in page


def test_wrong_words() -> None:
    wrong = {"": "GROUP", "pss": "'pss'", "ps": "COMMAND", "ps start": "'start'", "--verify": "GROUP"}
    for words, said in wrong.items():
        assert said in het(*words.split(), status=2).err
    assert het("--version").out.startswith("het_tf ")


def test_numbers_and_bytes_have_one_unit() -> None:
    """Bytes were counted by 1024 and called kB, so 64MB that were given came back as 61 MB."""
    sizes = [show.size(n) for n in (0, 999, 1000, 64e6, 1 << 30)]
    assert sizes == ["0 B", "999 B", "1 kB", "64 MB", "1.07 GB"]
    assert [show.number(n) for n in (12_345, 999_400, 999_700, 1e9)] == ["12.3k", "999k", "1M", "1G"]
    assert show.size(999_700) == "1 MB"  # 1e+03 kB


def test_dates_have_a_zone() -> None:
    """A time in seconds is a date; a count of steps, which a publisher may give too, is none."""
    assert show.date(1_700_000_000) == "2023-11-14 22:13:20Z"
    values = (1_700_000_000.5, 5000, {"day": 3}, None, True, 1e300)
    texts = ["2023-11-14 22:13:20Z", "5000", '{"day": 3}', "null", "true", "1e+300"]
    assert [show.when(value) for value in values] == texts


PIPES = {
    "print": "print('answer')",
    "much": "print('answer\\n' * 100_000)",
    "rich": "show.console().print('answer')",
    "an error": "print('answer') or int('x')",
}


@pytest.mark.parametrize("kind", PIPES)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_nobody_reads_on(kind: str, stream: str) -> None:
    """A pipe is a ConnectionError too, which het serve and het publish printed: "Broken pipe"."""
    code = f"""
        import sys
        from het_tf.python import cli, show
        from het_tf.ext.serving.python.publishing.cli import HET
        HET.command("pipe", "answers")(lambda _: {PIPES[kind]} or 0)
        sys.exit(cli.main(["publish", "pipe"]))
    """
    read, write = os.pipe()
    os.close(read)
    other = "stderr" if stream == "stdout" else "stdout"
    process = start(code, **{stream: write, other: subprocess.PIPE})
    os.close(write)
    _, err = process.communicate(timeout=60)
    silent = stream == "stderr" and kind != "an error"
    assert process.returncode == (0 if silent else 141)
    assert stream == "stderr" or err == ""


def test_a_command_whose_reader_has_gone() -> None:
    """The whole path of a command."""
    code = "import sys; from het_tf.python.cli import main; sys.exit(main('ps up --help'.split()))"
    # Unbuffered, argparse itself drops the error of a help text that nobody reads.
    process = start(code, buffered=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(timeout=60)) == ("", 141)


def test_commands_and_readers_do_not_need_tensorflow() -> None:
    """They start at once, and on hosts without it; `het --help` loads no group, and het ps no NumPy."""
    code = """
        import os, sys
        from het_tf.python.cli import GROUPS, main, parser
        parser().format_help()
        assert not {module for module, _ in GROUPS.values()} & set(sys.modules)
        assert main(["ps", "status", "--ps", "redis://127.0.0.1:1"]) == 1
        assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "2"  # its log does not come before an answer
        from het_tf.ext.workers.python import environments
        environments.find()
        assert not {"tensorflow", "keras", "numpy", "redis"} & set(sys.modules)
        import het_tf.ext.serving.python.publishing.dense_store
        parser(*GROUPS)
        from het_tf.python import calling
        calling.tools()
        assert "tensorflow" not in sys.modules
    """
    done = start(code, stderr=subprocess.PIPE)
    (line,) = done.communicate(timeout=300)[1].splitlines()
    assert done.returncode == 0
    assert "no server answers: cannot connect to 127.0.0.1:1: Connection refused" in line
