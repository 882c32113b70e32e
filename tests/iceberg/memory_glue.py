"""A Glue in this process's memory that replaces a whole entry by what an update says, as AWS's own does."""

from __future__ import annotations

import json
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

DATABASE = "shop"


class MemoryGlue:
    """Entries by name; ``client`` is botocore's own, whose requests end here."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()
        self.denied = ""
        self.client: Any = boto3.client(
            "glue", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b"
        )
        self.client.meta.events.register("before-send.glue", self._send)

    def catalog(self, folder: Path, **properties: str) -> Any:
        """safewrite's own Glue catalog before it, with its files in a folder."""
        from safewrite.iceberg.catalog.glue_catalog import GlueCatalog

        return GlueCatalog("glue", client=self.client, warehouse=folder.as_uri(), **properties)

    def enter(self, name: str, **said: Any) -> None:
        """Enter a table as another tool does."""
        self.entries[name] = {"Name": name, "DatabaseName": DATABASE, "VersionId": "0", **said}

    def edit(self, name: str, **said: Any) -> None:
        """Change an entry as a person does in the console: the rest stays."""
        entry = self.entries[name]
        self.entries[name] = {**entry, **said, "VersionId": str(int(entry["VersionId"]) + 1)}

    # --- what it answers ------------------------------------------------------------------------
    def _send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        target = request.headers["X-Amz-Target"]
        name = (target.decode() if isinstance(target, bytes) else target).rpartition(".")[2]
        self.asked[name] += 1
        body: Any = request.body
        status, said = self._answer(name, json.loads(body))
        headers: Any = {"Content-Type": "application/x-amz-json-1.1"}
        raw: Any = BytesIO(json.dumps(said).encode())
        raw.stream = lambda amt=1024, decode_content=None: iter([raw.getvalue()])
        return AWSResponse(request.url, status, headers, raw)

    def _answer(self, call: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if call == self.denied:
            return _error("AccessDeniedException", "no identity-based policy allows it")
        sent = body.get("TableInput", {})
        name = str(body.get("Name") or sent.get("Name"))
        entry = self.entries.get(name)
        match call:
            case "GetDatabase":
                return 200, {"Database": {"Name": body["Name"]}}
            case "CreateTable" if entry is not None:
                return _error("AlreadyExistsException", "Table already exists.")
            case "CreateTable":
                self.enter(name, **sent)
            case "GetTable" | "UpdateTable" | "DeleteTable" if entry is None:
                return _error("EntityNotFoundException", f"Entity Not Found: {name}")
            case "GetTable":
                return 200, {"Table": entry}
            case "UpdateTable" if body["VersionId"] != self.entries[name]["VersionId"]:
                return _error("ConcurrentModificationException", "Update table failed")
            case "UpdateTable":
                federated = self.entries[name].get("FederatedTable")
                version = str(int(body["VersionId"]) + 1)
                self.enter(name, **{**sent, "VersionId": version})
                self.entries[name] |= {"FederatedTable": federated} if federated else {}
            case "DeleteTable":
                del self.entries[name]
            case other:
                raise AssertionError(other)
        return 200, {}


def _error(code: str, said: str) -> tuple[int, dict[str, Any]]:
    return 400, {"__type": code, "Message": said}
