"""From settings to an arbiter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tandemq_server.arbiters.base import Arbiter, ArbiterRefused, is_name
from tandemq_server.arbiters.endpoints import client_tls
from tandemq_server.arbiters.etcd import Etcd
from tandemq_server.arbiters.witness_client import Witness
from tandemq_server.config.arbiters import EtcdSettings, WitnessSettings

SECRET_MAX = 4096


def open_arbiter(
    settings: EtcdSettings | WitnessSettings,
    cluster: str,
    ttl_s: float,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
) -> Arbiter:
    """The arbiter of `cluster`, nothing asked of it yet. env: None for this process's.

    Raises `ArbiterRefused` when a file or variable that is named does not serve.
    """
    if not is_name(cluster):
        raise ArbiterRefused(f"failover.cluster: {cluster!r} cannot be the name of a register")
    variables = os.environ if env is None else env
    if isinstance(settings, WitnessSettings):
        return Witness(
            settings.url,
            cluster,
            ttl_s=ttl_s,
            timeout_s=timeout_s,
            token=secret(settings.token_env, settings.token_file, variables),
            tls=client_tls(settings.ca) if settings.url.startswith("https:") else None,
        )
    tls = any(url.startswith("https:") for url in settings.endpoints)
    return Etcd(
        settings.endpoints,
        cluster,
        ttl_s=ttl_s,
        timeout_s=timeout_s,
        user=settings.user,
        password=secret(settings.password_env, settings.password_file, variables),
        tls=client_tls(settings.ca, settings.certificate, settings.key) if tls else None,
    )


def secret(variable: str | None, file: Path | None, env: Mapping[str, str]) -> str | None:
    """A secret out of a variable or a file, None when neither is named. Raises `ArbiterRefused`."""
    if variable is not None:
        if not (value := env.get(variable)):
            raise ArbiterRefused(f"variable {variable} is not set")
        return value
    if file is None:
        return None
    try:
        with file.open("rb") as source:
            raw = source.read(SECRET_MAX + 1)
    except OSError as error:
        raise ArbiterRefused(f"{file}: {error.strerror}") from None
    text = raw.decode(errors="replace").strip()
    if not text or len(raw) > SECRET_MAX or not text.isprintable():
        raise ArbiterRefused(f"{file}: is not one line with a secret")
    return text
