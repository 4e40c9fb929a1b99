"""A real server with a listener of each dialect."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.compat.compat_server import Server, free_port


class Dialects(Server):
    """A server with a listener of each dialect and the space 0."""

    def __init__(self, directory: Path) -> None:
        self.port15 = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        config = {
            "listen_queue15": f"127.0.0.1:{self.port15}",
            "tubes": [{"name": "space0", "type": "queue15"}],
        }
        (directory / "node.yaml").write_text(yaml.safe_dump(config))
        super().__init__(directory, flags=["--config", str(directory / "node.yaml")])
