"""Texts that strangers wrote: cut, with the length said, and no half of a credential left over."""

from __future__ import annotations

import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from automl.record.secrets import mask_credentials
from automl.record.texts import cut_text, cut_text_middle, fit_line, fit_text, printable_text

SECRET = "postgresql://ann:s3cret@db/studies"
TEXTS = st.text(st.sampled_from("ab \n:/@=é"), max_size=120)


def test_a_short_text_stays_as_it_is() -> None:
    assert fit_text("two\nlines  here") == "two\nlines  here"
    assert fit_line("two\nlines  here") == "two lines here"
    assert fit_text("") == fit_line("") == ""


def test_a_long_one_says_how_long_it_was() -> None:
    assert cut_text("x" * 5_000, 50) == "x" * 25 + " … [cut, 5000 characters]"
    assert fit_line("x" * 5_000, 50) == "x" * 25 + " … [cut, 5000 characters]"
    lines = cut_text_middle("begin\n" + "x" * 5_000 + "\nthe end", 2_000)
    assert lines.startswith("begin\nxxx")
    assert "\n… [cut, 5014 characters] …\n" in lines
    assert lines.endswith("xxx\nthe end")


@given(TEXTS, st.integers(30, 100))
def test_nothing_is_longer_than_allowed(text: str, limit: int) -> None:
    assert len(cut_text(text, limit)) <= limit
    assert len(fit_line(text, limit)) <= limit
    assert len(fit_text(text, limit)) <= limit + len("\n… [cut, 120 characters] …\n")


@given(TEXTS, st.integers(30, 100))
def test_what_fits_is_not_changed_again(text: str, limit: int) -> None:
    assert fit_line(fit_line(text, limit), limit) == fit_line(text, limit)


def test_where_it_is_cut_no_part_of_a_credential_is_left() -> None:
    for n_before in range(240):  # so that beginning and end of what is left fall into all of it
        text = f"{'x ' * 30}{'y' * n_before} {SECRET} {'z ' * 200}"
        assert "s3c" not in fit_text(text, 400) + fit_line(text, 60)
        assert "s3c" not in mask_credentials(cut_text(text, 120))
        text = f"{'z ' * 200}{SECRET} {'y' * n_before}{' x' * 40}"
        assert "et@" not in fit_text(text, 400)


def test_what_nobody_can_print_is_marked() -> None:
    assert fit_text("ä\tb\r\nc") == "ä\tb\nc"
    assert fit_text("\x1b[2J \0 \ud800 \udc80 \x9b") == "�[2J � � � �"
    fit_text("\ud800\udfff\x00").encode()


def test_no_format_character_turns_the_text_around_it() -> None:
    formats = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) == "Cf"]
    assert "\u202e" in formats
    assert {printable_text(character) for character in formats} == {"\ufffd"}
    assert printable_text("é Ω 中 ع א 🙂 \u0301\n\t") == "é Ω 中 ع א 🙂 \u0301\n\t"
