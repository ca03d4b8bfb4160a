"""Buckets on loopback, spoken to as the real ones are: S3 by moto, Google's by an emulator.

What neither shows is whether a credential is refused: both take any.
"""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from gcp_storage_emulator.server import create_server
from moto.server import ThreadedMotoServer

from tests.end_to_end.server import free_port

_KEYS = KEY_ID, SECRET = "AKIAHUNTER2HUNTER2", "hunter2/hunter2+hunter2"


class Kind(enum.Enum):
    """What keeps a bucket, and how it is found."""

    S3 = "s3, found by the environment"
    S3_NAMED = "s3, found by its address"
    GS = "gs"


@dataclass(frozen=True)
class Bucket:
    """An empty one, and what a machine needs to use it."""

    url: str
    environment: Mapping[str, str]
    secrets: tuple[str, ...]
    """Which nobody may write down."""


@contextmanager
def bucket_of(kind: Kind, folder: Path) -> Iterator[Bucket]:
    """`folder` is for what a machine has outside of all studies."""
    with _gs(folder) if kind is Kind.GS else _s3(named=kind is Kind.S3_NAMED) as made:
        yield made


@contextmanager
def _s3(*, named: bool) -> Iterator[Bucket]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        at, bucket = f"http://{host}:{port}", uuid.uuid4().hex  # moto's are one process's
        client = boto3.client(
            "s3",
            endpoint_url=at,
            region_name="us-east-1",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
        )
        client.create_bucket(Bucket=bucket)
        client.close()
        environment = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
        url = f"s3://{bucket}/sweeps"
        if named:
            yield Bucket(f"{url}?endpoint_override={host}:{port}&scheme=http", environment, _KEYS)
        else:
            yield Bucket(url, environment | {"AWS_ENDPOINT_URL": at}, _KEYS)
    finally:
        server.stop()


@contextmanager
def _gs(folder: Path) -> Iterator[Bucket]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        "type": "service_account",
        "project_id": "sweeps",
        "private_key_id": KEY_ID,
        "private_key": key.decode(),
        "client_email": "sweeps@sweeps.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "http://127.0.0.1:9/",  # not asked: the key signs by itself
    }
    file = folder / "account.json"
    file.write_text(json.dumps(account))
    port = free_port()
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    try:
        yield Bucket(
            f"gs://bucket/sweeps?endpoint_override=127.0.0.1:{port}&scheme=http",
            {"GOOGLE_APPLICATION_CREDENTIALS": str(file)},
            (KEY_ID, key.decode().splitlines()[1]),
        )
    finally:
        server.stop()
