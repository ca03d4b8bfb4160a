"""Credentials in texts: found and masked; references and plain addresses left alone."""

from __future__ import annotations

import pytest

from automl.credentials import carries_credential, mask_credentials


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://ann:s3cret@db:5432/studies", "postgresql://ann:***@db:5432/studies"),
        ("postgresql://ann:s3/cr@et@db/studies", "postgresql://ann:***@db/studies"),
        ("https://s3cret@mlflow.example", "https://***@mlflow.example"),
        ("postgresql://db/x?user=ann&password=s3cret", "postgresql://db/x?user=ann&password=***"),
        ("https://h/x.csv?api_key=s3cret&page=2", "https://h/x.csv?api_key=***&page=2"),
        ("cannot reach http://a:s3cret@h now", "cannot reach http://a:***@h now"),
        ("http://a:${oc.env:PW,s3cret}@h", "http://a:***@h"),
        ("http://a:${oc.env:PART}s3cret@h", "http://a:***@h"),
    ],
)
def test_a_credential_is_masked(text: str, masked: str) -> None:
    assert mask_credentials(text) == masked
    assert carries_credential(text)
    assert "s3" not in masked


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////data/mlflow.db",
        "http://127.0.0.1:5000",
        "postgresql://ann@db/studies",
        "postgresql://ann:${oc.env:PW}@db/studies",
        "https://${oc.env:TOKEN}@h?token=${oc.env:TOKEN}",
        "ann@example.org",
        "postgresql://ann:***@db",
        "",
    ],
)
def test_what_opens_nothing_stays(text: str) -> None:
    assert mask_credentials(text) == text
    assert not carries_credential(text)
