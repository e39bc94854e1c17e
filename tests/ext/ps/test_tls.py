"""Tables, het ps and serving under TLS, in a process that has imported TensorFlow."""

import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import redis_lib
import tensorflow  # noqa: F401  (its names of OpenSSL's functions are BoringSSL's, and were here first)
from het_ps_lib import ask, check, free_ports, het_ps, picture, train, up
from tools_lib import python

import het_tf
from het_tf.ext.ps.python import address as addresses
from het_tf.ext.ps.python import balance, programs, reshard, tls
from het_tf.ext.ps.python.errors import ServerError


def _missing() -> str:
    if shutil.which("openssl") is None:
        return "openssl is missing: apt-get install openssl"
    try:
        tls.check_server(programs.find_server())
    except ServerError as error:
        return str(error)
    return ""


pytestmark = [*redis_lib.MARKS, pytest.mark.skipif(bool(_missing()), reason=_missing() or "there is TLS")]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The directory of a server of `het ps up --tls`, and what that printed."""
    directory = tmp_path_factory.mktemp("tls") / "ps"
    with up(directory, "--port", free_ports(1), "--tls") as done:
        yield directory, done.out


@pytest.fixture
def directory(one):
    yield one[0]
    ask(address_of(one[0]), "FLUSHALL")
    redis_lib.leave()


def address_of(directory: Path) -> str:
    return (directory / "address").read_text().strip()


def complaint(address: str) -> str:
    """What a training process says of an address that it cannot use; commands ask by the same client."""
    with pytest.raises((ConnectionError, OSError, ValueError)) as caught:
        het_tf.init(ps=address)
    redis_lib.leave()
    return str(caught.value)


def test_one_server(one, directory):
    address = address_of(directory)
    assert address.startswith("rediss://127.0.0.1:") and address.endswith(f"?ca={directory}/tls/ca.crt")
    assert f"HET_PS={address}\n" in one[1]
    check(train(address))
    assert not picture("--dir", directory)["faults"] and not picture("--ps", address)["faults"]
    assert ask(address, "CONFIG", "GET", "port") == ["port", "0"], "nothing answers in the clear"
    assert (directory / "tls").stat().st_mode & 0o77 == 0
    for name in ("ca.key", "server.key"):
        assert (directory / "tls" / name).stat().st_mode & 0o77 == 0
    before = (directory / "tls/server.crt").read_bytes()
    assert "runs already" in het_ps("up", "--dir", directory).err
    assert (directory / "tls/server.crt").read_bytes() == before
    assert "has tls = True, and False" not in het_ps("up", "--dir", directory, "--tls").err


# Certificates and files that are refused: tests/ext/ps/redis/tls_test.cc.
def test_what_is_wrong_is_said(directory, tmp_path):
    address = address_of(directory)
    place, key = address.partition("?")[0], tmp_path / "hidden.key"
    for wrong, why in {
        place.replace("rediss", "redis"): "a server that speaks TLS needs rediss://",
        place: "give the CA that signed it by ?ca=FILE",
        f"{address}&cert={directory}/tls/server.crt&key={key}": "key",
    }.items():
        for said in (complaint(wrong), het_ps("status", "--ps", wrong, status=1).err):
            assert why in said and str(key) not in said
    with redis_lib.running(tmp_path / "plain", "--port", str(port := redis_lib.free_port())):
        wrong = f"rediss://127.0.0.1:{port}?ca={directory}/tls/ca.crt"
        assert "does not speak TLS" in complaint(wrong)


def test_certificates_for_clients_and_old_versions(tmp_path):
    """Both were called a matter of the CA, or of the client's certificate: the wrong files to look at."""
    files = tmp_path / "tls"
    tls.make_certificates(files, "127.0.0.1")
    config = (files / "openssl.cnf").read_text().replace("serverAuth, clientAuth", "clientAuth")
    (files / "openssl.cnf").write_text(config)
    words = "openssl req -x509 -config openssl.cnf -newkey rsa:2048 -nodes -extensions server -CA ca.crt"
    words += " -CAkey ca.key -keyout client.key -out client.crt"
    subprocess.run(words.split(), cwd=files, check=True, capture_output=True)
    old = "--tls-protocols TLSv1.1 --tls-ciphers DEFAULT@SECLEVEL=0"
    for name, more, why in (
        ("client", "", "it is for other uses: issue one with extendedKeyUsage = serverAuth"),
        ("server", old, "tls-protocols to 'TLSv"),
    ):
        words = f"--port 0 --tls-port {(port := redis_lib.free_port())} --tls-auth-clients no {more}"
        words += f" --tls-cert-file {files}/{name}.crt --tls-key-file {files}/{name}.key"
        words += f" --tls-ca-cert-file {files}/ca.crt"
        with redis_lib.running(tmp_path / name, *words.split()):
            said = complaint(f"rediss://127.0.0.1:{port}?ca={files}/ca.crt")
            assert why in said and "is not the CA" not in said and "cert=FILE" not in said


def test_clients_show_certificates(directory):
    address = address_of(directory)
    certificates = directory / "tls"
    shown = f"{address}&cert={certificates}/server.crt&key={certificates}/server.key"
    ask(address, "CONFIG", "SET", "tls-auth-clients", "yes")
    try:
        assert "?cert=FILE&key=FILE" in complaint(address)
        check(train(shown))
        assert not picture("--ps", shown)["faults"]
    finally:
        redis_lib.leave()
        ask(shown, "CONFIG", "SET", "tls-auth-clients", "optional")


def test_a_cluster_whose_slots_move(tmp_path):
    """Replication, the bus, MIGRATE and MOVED: nothing of a cluster leaves TLS."""
    directory, port = tmp_path / "ps", free_ports(4)
    with up(directory, "--shards", 2, "--replicas", 1, "--port", port, "--tls"):
        seen = picture("--dir", directory)
        assert [s["role"] for s in seen["servers"]] == ["primary", "replica"] * 2 and not seen["faults"]
        het_tf.init(ps=address_of(directory))
        layer, expected = redis_lib.counter(staleness=0, rows=50), np.zeros(200)
        redis_lib.count(layer, np.arange(200), expected)
        with contextlib.ExitStack() as stack:
            shards = reshard.Shards(addresses.parse(address_of(directory)), stack)
            stays, leaves = shards.nodes
            slots = shards.weights().keys() & shards.owned[leaves]
            assert sum(shards.run(balance.Move(slot, leaves, stays)) for slot in slots) == 32
        redis_lib.count(layer, np.arange(200), expected)  # MOVED tells where the rows are
        het_tf.flush()
        check(expected)
        (first, *_, last) = picture("--dir", directory)["servers"]
        assert sorted((first["partitions"], last["partitions"])) == [0, 64]


def test_what_up_needs(tmp_path, monkeypatch):
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho Failed finding TLS support. >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(programs, "find_server", lambda: str(program))
    words = ("up", "--dir", tmp_path / "ps", "--port", free_ports(1), "--tls")
    assert f"{program} is built without TLS; leave --tls out" in het_ps(*words, status=1).err
    monkeypatch.undo()
    monkeypatch.setattr(tls.shutil, "which", lambda _: None)
    there = shutil.which("redis-server") or "/usr/bin/redis-server"
    monkeypatch.setattr(programs, "find_server", lambda: there)
    assert "apt-get install openssl" in het_ps(*words, status=1).err


def test_tensorflow_comes_first_in_a_process(directory):
    """Nothing has opened OpenSSL before."""
    program = f"""
import tensorflow
import het_tf, json
het_tf.init(ps={address_of(directory)!r})
layer = het_tf.keras.Embedding(2, name="t", initializer=het_tf.initializers.Constant(1.0))
print(json.dumps(layer(tensorflow.constant([1])).numpy().tolist()))
"""
    assert json.loads(python("-c", program).stdout.splitlines()[-1]) == [[1, 1]]
