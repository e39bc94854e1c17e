"""The examples of examples/deploy fit each other; the manual's lines are real ones."""

import re

import pytest
from tools_lib import ROOT

pytestmark = pytest.mark.long
DEPLOY = ROOT / "examples/deploy"


def test_compose():
    yaml = pytest.importorskip("yaml", reason="there is no YAML parser")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    shards = {name: service for name, service in compose["services"].items() if name.startswith("shard-")}
    assert len(shards) == 3 and set(compose["volumes"]) == set(shards)
    places = set()
    for name, service in shards.items():
        place = service["networks"]["servers"]["ipv4_address"]
        assert service["command"].endswith(f"--cluster-announce-ip {place}")
        assert service["volumes"] == ["./redis.conf:/het/redis.conf:ro", f"{name}:/data"]
        assert service["image"] == "het-ps"
        assert service["command"].startswith("valkey-server /het/redis.conf ")
        places.add(place)
    make = compose["services"]["form"]["command"][-1]
    assert set(re.findall(r"(\d+(?:\.\d+){3}):6379", make)) == places
    head = (DEPLOY / "compose.yaml").read_text().partition("HET_PS=redis://")[2].splitlines()[0]
    assert set(head.split(",")) == places


def test_kubernetes():
    yaml = pytest.importorskip("yaml", reason="there is no YAML parser")
    config, service, servers, job = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    assert config["data"]["redis.conf"] == (DEPLOY / "redis.conf").read_text()
    spec = servers["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert spec["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert container["command"] == ["valkey-server", "/het/conf/redis.conf"]
    assert all(isinstance(word, str) for word in container["args"])
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {"/data": "data", "/het/conf": config["metadata"]["name"].replace("het-ps", "conf")}
    loop = job["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert [f"$(ip {n}):6379" in loop for n in range(4)] == [True] * spec["replicas"] + [False]


def test_the_manual_explains_real_messages():
    manual = (ROOT / "docs/servers.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "het_tf/ext/ps/python").glob("*.py"))
    code = re.sub(r'"\s+f?"', "", code)
    for message in ("is on PATH", "cannot change while", "the server ended", "it loads its data",
                    "does not see a whole cluster yet", "belongs to another cluster already",
                    "cannot write its append-only file", "has no link to its primary", "is both at",
                    "have no server", "is not gone after"):  # fmt: skip
        assert message in manual and message in code, message
