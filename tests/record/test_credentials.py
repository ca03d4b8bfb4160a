"""Credentials in texts: found and masked; references and plain addresses left alone."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.record.secrets import carries_credential, mask_urls


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
        ("http://a:s3@h no http://b:s3@h", "http://a:***@h no http://b:***@h"),
        ("http://a:s3://b:s3@h", "http://a:***@h"),
    ],
)
def test_a_credential_is_masked(text: str, masked: str) -> None:
    assert mask_urls(text) == masked
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
        "http://a:b no @ of it",
        "http://a:5000 ann@h",
        "ssh://ann@b://c:d",
    ],
)
def test_what_opens_nothing_stays(text: str) -> None:
    assert mask_urls(text) == text
    assert not carries_credential(text)


# --- the rule as it was first written: what it took for a credential is one still ----------------

HELD = re.compile("\0(\\d+)\0")
REFERENCE = re.compile(r"\$\{[^{},]*\}")
USER = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<user>[^\s/@:]*)(?::(?P<secret>\S*))?@")
QUERY = re.compile(
    r"(?P<key>[?&;][\w-]*(?:password|passwd|pwd|secret|token|key)=)(?P<secret>[^&\s;#'\"]*)",
    re.IGNORECASE,
)
PIECES = st.sampled_from(
    [
        *"a1.+_é:@/?&;=#' \n",
        *("http", "https", "://", "ä://", "x-", "token", "key=", "password=", "***", "s3"),
        *("${x}", "${oc.env:P@:/ }", "${a,b}"),
    ]
)


def masked_by_expressions(text: str) -> str:
    """Quadratic in a long word, which is why it is only here."""
    references = REFERENCE.findall(text)
    numbers = iter(range(len(references)))
    text = REFERENCE.sub(lambda match: f"\0{next(numbers)}\0", text)
    text = QUERY.sub(by_query, USER.sub(by_user, text))
    return HELD.sub(lambda match: str(references[int(match[1])]), text)


def by_user(match: re.Match[str]) -> str:
    if is_secret(match["secret"]):
        return f"{match['scheme']}://{match['user']}:***@"
    if match["scheme"] in ("http", "https") and is_secret(match["user"]):
        return f"{match['scheme']}://***@"
    return match[0]


def by_query(match: re.Match[str]) -> str:
    return match["key"] + "***" if is_secret(match["secret"]) else match[0]


def is_secret(text: str | None) -> bool:
    return text is not None and HELD.sub("", text) not in ("", "***")


@settings(max_examples=500)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_whether_a_setting_carries_one_is_decided_as_ever(text: str) -> None:
    assert mask_urls(text) == masked_by_expressions(text)
    assert carries_credential(text) == (masked_by_expressions(text) != text)


@pytest.mark.parametrize("text", ["\x007\x00", "\0" * 5])
def test_no_text_is_taken_for_our_own_marks(text: str) -> None:
    assert mask_urls(text) == text
