"""When certificates end is read as OpenSSL reads it; what is none is passed over."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from tandemq_server.config.certificates import end_of, ends_of
from tandemq_server.config.schema import Settings


def told_by_openssl(file: Path) -> int:
    words = ["openssl", "x509", "-noout", "-enddate", "-dateopt", "iso_8601", "-in", str(file)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    said = said.strip().replace("Z", "+0000")
    return int(datetime.strptime(said, "notAfter=%Y-%m-%d %H:%M:%S%z").timestamp())


@pytest.mark.parametrize("years", [1, 60])
def test_the_end_is_that_of_openssl(tmp_path: Path, years: int) -> None:
    ends = datetime.now(UTC).replace(year=datetime.now(UTC).year + years, month=3, day=2)
    authority = trustme.CA()
    issued = authority.issue_cert("queue.example", not_after=ends)
    file = tmp_path / "cert.pem"
    issued.cert_chain_pems[0].write_to_path(str(file))
    assert end_of(file) == told_by_openssl(file)
    # Of a chain the first end counts, wherever in the file it stands.
    sooner = authority.issue_cert("queue.example", not_after=ends.replace(day=1))
    sooner.cert_chain_pems[0].write_to_path(str(tmp_path / "both.pem"))
    with (tmp_path / "both.pem").open("a") as both:
        both.write(file.read_text())
    assert end_of(tmp_path / "both.pem") == told_by_openssl(file) - 86_400


def test_what_is_no_certificate_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    assert end_of(file) is None
    for body in ("", "AAAA", "MIIB", "%%%", "MAMCAQE="):
        file.write_text(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        assert end_of(file) is None, body


def test_each_file_that_a_node_has_or_trusts_is_named(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("queue.example")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(cert))
    issued.private_key_pem.write_to_path(str(key))
    flags = {
        "name": "a",
        "tls.cert": str(cert),
        "tls.key": str(key),
        "tls.client_ca": str(cert),
        "failover.arbiter": "witness",
        "failover.cluster": "jobs",
        "failover.witness.url": "https://127.0.0.1:8400",
        "failover.witness.ca": str(cert),
        "peers": ["127.0.0.1:1"],
        "replication.user": "nodes",
        "replication.password_env": "LINK",
        "replication.ack": "pair",
    }
    found = ends_of(Settings.load(None, flags, {"LINK": "a password of some length"}))
    assert [one.setting for one in found] == ["tls.cert", "tls.client_ca", "failover.witness.ca"]
    assert {one.ends_s for one in found} == {told_by_openssl(cert)}
