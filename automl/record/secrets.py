"""Find passwords, tokens and keys in texts, and mask them.

`mask_urls` masks credentials in URLs only, and decides which settings may be stored. A reference
such as `${oc.env:NAME}` is no credential and stays. `mask_credentials` masks more widely, in texts
that people read (exceptions, log lines, tags, printed lines): a word masked too much costs little
there. Names of secrets without a secret stay (`max_tokens=100`, `password = None`,
`token = self.next()`), so that tracebacks can be read.

Texts come from strangers, and no other thread runs while an expression is matched. Each expression
therefore begins with a text of its own or is bounded, so that no character is looked at more than a
fixed number of times (`experiments/004-masking` measures it).

Cutting texts and masking settings by their key is done in `texts.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MASK = "***"

_REFERENCE = re.compile(r"\$\{[^{},]*\}")
"""An interpolation without a default (a default would stand in clear)."""
_REFERENCE_MARK = "\0"
"""Replaces each character of a reference, because some of them have a meaning in a URL."""
# `++`, and only at the start of a word: else each letter of it would be tried as a beginning.
_SCHEME = re.compile(r"(?<![\w+.-])[\w+.-]++://")
_LETTER = re.compile(r"[A-Za-z]")
_USER = re.compile(r"[^\s/@:]*+")
_WORD = re.compile(r"\S*+")
# MLflow's `viewStateShareKey` is excepted: its purpose is to be shared.
_QUERY = re.compile(
    r"(?P<key>[?&;][\w-]*(?:password|passwd|pwd|secret|token|(?<!share)key)=)(?P<secret>[^&\s;#'\"]*)",
    re.IGNORECASE,
)


def mask_urls(text: str) -> str:
    """Return `text` with each password and token in its URLs replaced by `***`."""
    if "@" in text:
        text = mask_spans(text, _in_users(_shadow(text)))
    return mask_spans(text, _in_queries(_shadow(text))) if "=" in text else text


def carries_credential(text: str) -> bool:
    """Return whether `mask_urls` would change `text`."""
    return mask_urls(text) != text


def _shadow(text: str) -> str:
    """Return `text` with its references blotted out; every character keeps its place."""
    return _REFERENCE.sub(lambda match: _REFERENCE_MARK * len(match[0]), text)


def mask_spans(text: str, spans: Iterator[tuple[int, int]]) -> str:
    """Return `text` with the mask in place of each span; spans are in order, without overlap."""
    parts, end = [], 0
    for begin, after in spans:
        parts += [text[end:begin], MASK]
        end = after
    return "".join(parts) + text[end:] if parts else text


def _in_users(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each secret in `scheme://user:secret@`, or of a token used as web user."""
    at = word_end = last_at = 0
    while (scheme := _SCHEME.search(text, at)) is not None:
        at = user_at = scheme.end()
        if (letter := _LETTER.search(text, scheme.start(), user_at)) is None:
            continue
        if user_at > word_end:
            # SQLAlchemy takes `/` and `@` in a password, hence up to the last @ of the word.
            word_end = _end(_WORD, text, user_at)
            last_at = text.rfind("@", user_at, word_end)
        user_end = _end(_USER, text, user_at)
        if text.startswith(":", user_end) and last_at > user_end:
            at = last_at
            if _is_secret(text[user_end + 1 : last_at]):
                yield user_end + 1, last_at
                continue
        elif text.startswith("@", user_end):
            at = user_end
        else:
            continue
        # Web addresses carry tokens as the user; elsewhere a user alone opens nothing.
        is_web = text[letter.start() : user_at - 3] in ("http", "https")
        if is_web and _is_secret(text[user_at:user_end]):
            yield user_at, at


def _in_queries(text: str) -> Iterator[tuple[int, int]]:
    for match in _QUERY.finditer(text):
        if _is_secret(match["secret"]):
            yield match.span("secret")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    assert match is not None, "the pattern matches the empty text, too"
    return match.end()


def _is_secret(text: str) -> bool:
    return text.replace(_REFERENCE_MARK, "") not in ("", MASK)


# Expressions searched in `lower` are literal up to their first choice: this makes them fast.
_NAMED = re.compile(
    r"""
    (?P<name>
        password | passwd | passphrase | pwd | secret | token | credentials | credential
      | authorization
      | (?:api|access|account|auth|client|encryption|master|private|secret|shared|signing|storage)
        [_\- ]?key
      | key                                         # SOME_KEY=, but not sort_key=
    )
    \\?["']?\]?                                   # "token": …, environ["TOKEN"] = …
    [ \t]{0,3} (?: :=|=>|[:=](?![:=]) ) [ \t]{0,3}
    (?: (?:bearer|basic|token|digest|negotiate|apikey)[ ]{1,3} )?
    """,
    re.VERBOSE,
)
_CAPITAL_KEY = re.compile(r"[A-Z0-9]_KEY")
_OTHER_TOKENS = re.compile(
    r"(?:^|[^a-z])(?:pad|eos|bos|unk|sep|cls|mask|start|end|stop|special|image|next|previous|last"
    r"|first|per|max|min|n|num|unknown|unexpected)[_\- ]$",
    re.IGNORECASE,
)
"""Text before a token that is no secret: `pad_token`, `seconds per token`."""
_QUOTED = {
    '"': re.compile(r'[bfru]{0,2}"((?:[^"\\\n]|\\.)*+)', re.IGNORECASE),
    "'": re.compile(r"[bfru]{0,2}'((?:[^'\\\n]|\\.)*+)", re.IGNORECASE),
    '\\"': re.compile(r'\\"([^"\\\n]*+)'),
    "\\'": re.compile(r"\\'([^'\\\n]*+)"),
}
_OPENING = re.compile(r"(?:[bfru]{1,2}(?=[\"']))?(\\?[\"'])", re.IGNORECASE)
_BARE = re.compile(r"[^\s&;'\"`]++")
_NO_SECRET = re.compile(
    r"""
      \*+ | \.\.\. | …
    | none|null|nil|true|false|undefined|empty|missing|unset|required|optional|invalid|expired
    | incorrect|wrong|unknown|not|is|was|str|int|float|bool|bytes|object|any|list|dict|tuple
    | (?-i:\$\{?[A-Z_][A-Z0-9_]{0,60}\}?) | \{[\w.!:]{0,80}\} | %(?:\(\w{0,40}\))?[sdr]
    | \$\{[^{}\s]{0,80}\} | <[\w/|. -]{1,40}> | (?-i:\[[A-Z]{1,12}\])
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NUMBER = re.compile(r"[-+]?\d{1,6}(?:\.\d{1,12})?(?:e[-+]?\d{1,3})?%?", re.IGNORECASE)
_ENDS = re.compile(r"[\s,;:.)\]}'\"]|$")
_CODE = re.compile(
    r"[a-z_][\w.]{0,80}(?:\([^)\n]{0,200}\)|\[[^\]\n]{0,80}\])|lambda\b"
    r"|(?:self|cls|args|cfg|conf|config|opts?|options|settings|os|env|environ|params|kwargs)\.",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"[A-Za-z_][\w.]{0,80}")
_PATH = re.compile(r"~?/|\./|[A-Z]:\\", re.IGNORECASE)
_BEARER = re.compile(
    r"bearer[ ]{1,3}(?!(?:tokens?|auth|authentication|authorization|scheme|header|realm|error)\b)"
    r"(?P<secret>[a-z0-9._~+/=-]{4,}+)"
)
_FLAG = re.compile(
    r"--(?!-)[a-z-]{0,24}?(?:password|passwd|token|secret|key)(?:[ ]{1,3}|[\"'],[ ]{0,3}[\"'])"
    r"(?P<secret>[^\s'\"<>\[({-][^\s'\"]*+)"
)
_METAVAR = re.compile(r"[A-Z_]+")
"""A placeholder in the help of a program, as in `--token TEXT`."""
_SHAPES = tuple(
    re.compile(shape)
    for shape in (
        r"AKIA(?<![\w-]AKIA)[A-Z0-9]{16}(?![\w-])",
        r"ASIA(?<![\w-]ASIA)[A-Z0-9]{16}(?![\w-])",
        r"AIza(?<![\w-]AIza)[\w-]{35}",
        r"eyJ(?<![\w-]eyJ)[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+",
        r"gh[pousr]_(?<![\w-]gh\w_)[A-Za-z0-9]{20,}+",
        r"github_pat_(?<![\w-]github_pat_)\w{20,}+",
        r"glpat-(?<![\w-]glpat-)[\w-]{16,}+",
        r"hf_(?<![\w-]hf_)[A-Za-z0-9]{20,}+",
        r"sk-(?<![\w-]sk-)(?:[A-Za-z0-9]{20,}+|(?:proj|ant|or|svcacct)-[\w-]{12,}+)",
        r"xox[abeoprs]-(?<![\w-]xox\w-)[\w-]{10,}+",
        r" PRIVATE KEY-----([^-]++)",
        r"sig=(?<=[?&]sig=)([^&\s;#'\"]++)",
        r"X-Amz-Signature=([^&\s;#'\"]++)",
    )
)
"""Forms that only credentials have, whatever their names are."""


def mask_credentials(text: str) -> str:
    """Return `text` with `***` for each password, token and key that can be recognised."""
    text = mask_urls(text)
    for shape in _SHAPES:
        spans = (match.span(match.lastindex or 0) for match in shape.finditer(text))
        text = mask_spans(text, spans)
    text = mask_spans(text, _after_words(text))
    return mask_spans(text, _in_names(text))


def _lower(text: str) -> str:
    """Return `text` in lower case; every character keeps its place (`İ` would become two)."""
    return text.encode("ascii", "replace").decode("ascii").lower()


def _after_words(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each secret after `Bearer` or a flag such as `--password`."""
    lower = _lower(text)
    bearers = [match.span("secret") for match in _BEARER.finditer(lower)]
    flags = [match.span("secret") for match in _FLAG.finditer(lower)]
    yield from sorted(bearers + [span for span in flags if not _METAVAR.fullmatch(text, *span)])


def _in_names(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each secret in `password=…`, `"token": "…"`, `API_KEY: …` and the like."""
    lower, at = _lower(text), 0
    while (named := _NAMED.search(lower, at)) is not None:
        at, begin, name = named.end(), named.start(), named["name"]
        if name == "key" and not _CAPITAL_KEY.match(text, max(0, begin - 2)):
            continue
        if name == "token" and _OTHER_TOKENS.search(lower, max(0, begin - 12), begin):
            continue
        opening = _OPENING.match(text, at)
        if opening is None:
            span = _bare_secret(text, at, name)
        else:
            span = _quoted_secret(text, at, opening[1], name)
        if span is not None:
            yield span
            at = span[1]


def _quoted_secret(text: str, at: int, quote: str, name: str) -> tuple[int, int] | None:
    match = _QUOTED[quote].match(text, at)
    if match is None or not match[1]:
        return None
    is_harmless = _NO_SECRET.fullmatch(match[1]) or _is_count(match[1], name)
    return None if is_harmless else match.span(1)


def _bare_secret(text: str, at: int, name: str) -> tuple[int, int] | None:
    no_secret = _NO_SECRET.match(text, at)
    if no_secret is not None and _ENDS.match(text, no_secret.end()):
        return None
    if text.startswith(MASK, at) or _CODE.match(text, at) or _is_variable(text, at, name):
        return None
    if name in ("pwd", "credential", "credentials") and _PATH.match(text, at):
        return None
    if not name.startswith("pass") and text[at : at + 1] in ("(", "[", "{"):
        return None
    number = _NUMBER.match(text, at)
    if number is not None and _ENDS.match(text, number.end()) and _is_count(number[0], name):
        return None
    if (bare := _BARE.match(text, at)) is None:
        return None
    value = bare[0].rstrip(",.:)]}>")
    return (at, at + len(value)) if value else None


def _is_count(text: str, name: str) -> bool:
    """Return whether `text` counts something: a password may be a number, a token may not."""
    return not name.startswith("p") and _NUMBER.fullmatch(text) is not None


def _is_variable(text: str, at: int, name: str) -> bool:
    """Return whether code passes a variable on: `password=password`, `token=args.hf_token`."""
    variable = _VARIABLE.match(text, at)
    if variable is None or not _ENDS.match(text, variable.end()):
        return False
    prefix, matched_name, _ = variable[0].lower().rpartition(name)
    return (
        bool(matched_name) and variable[0].lower().endswith(name) and prefix[-1:] in ("", "_", ".")
    )
