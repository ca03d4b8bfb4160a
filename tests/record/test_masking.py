"""Texts for people: what is a secret in them is masked, what only sounds like one stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.record.secrets import carries_credential, mask_credentials

AWS, GITHUB = "AKIA" + "IOSFODNN7EXAMPLE", "ghp_" + "s3cret" * 6  # no scanner shall find them here
JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJzM2NyZXQifQ.s3cret"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        # addresses, as ever
        ("no postgresql://ann:s3cret@db/x now", "no postgresql://ann:***@db/x now"),
        ("redis://:s3cret@host:6379/0", "redis://:***@host:6379/0"),
        ("https://h/x.csv?api_key=s3cret&page=2", "https://h/x.csv?api_key=***&page=2"),
        ("https://h/x?se=1&sig=s3cret%2B&sp=r", "https://h/x?se=1&sig=***&sp=r"),
        # names
        ("password=s3cret", "password=***"),
        ("password: s3cret", "password: ***"),
        ("Password = s3cret.", "Password = ***."),
        ("password=123456", "password=***"),
        ("password=secret", "password=***"),
        ("db.password=s3c@ret!, host=db", "db.password=***, host=db"),
        ("PGPASSWORD=s3cret psql", "PGPASSWORD=*** psql"),
        ("MYSQL_PWD=s3cret", "MYSQL_PWD=***"),
        ("passwd: s3cret", "passwd: ***"),
        ("passphrase='four s3cret words'", "passphrase='***'"),
        ("host=db user=ann password=s3cret dbname=x", "host=db user=ann password=*** dbname=x"),
        ("Driver=ODBC;UID=ann;PWD=s3cret;", "Driver=ODBC;UID=ann;PWD=***;"),
        ("connect(user='ann', password='s3cret')", "connect(user='ann', password='***')"),
        ("connect(password=s3cret)", "connect(password=***)"),
        ("token: s3cret", "token: ***"),
        ("invalid token: s3cret", "invalid token: ***"),
        ("HF_TOKEN=s3cret", "HF_TOKEN=***"),
        ("access_token=s3cret&x=1", "access_token=***&x=1"),
        ('{"token": "s3cret", "dim": 3}', '{"token": "***", "dim": 3}'),
        ("{'accessToken': 's3cret'}", "{'accessToken': '***'}"),
        (r'{\"token\": \"s3cret\"}', r'{\"token\": \"***\"}'),
        ('"token": "a \\"s3cret\\" one"', '"token": "***"'),
        ('os.environ["HF_TOKEN"] = "s3cret"', 'os.environ["HF_TOKEN"] = "***"'),
        (":password => 's3cret'", ":password => '***'"),
        ("token := s3cret", "token := ***"),
        ("client_secret=s3cret", "client_secret=***"),
        ("secret: s3cret", "secret: ***"),
        ("api_key=s3cret", "api_key=***"),
        ("api-key: s3cret", "api-key: ***"),
        ("x-api-key: s3cret", "x-api-key: ***"),
        ("apiKey=s3cret", "apiKey=***"),
        ("API key: s3cret", "API key: ***"),
        ("OPENAI_API_KEY=s3cret", "OPENAI_API_KEY=***"),
        ("WANDB_KEY='s3cret'", "WANDB_KEY='***'"),
        ("aws_secret_access_key = s3cret/x+y", "aws_secret_access_key = ***"),
        ("AccountKey=s3cret==;EndpointSuffix=x", "AccountKey=***;EndpointSuffix=x"),
        ("private_key: s3cret", "private_key: ***"),
        ("credentials: s3cret", "credentials: ***"),
        ("get_token(password=s3cret)", "get_token(password=***)"),
        ("token = get(password='s3cret')", "token = get(password='***')"),
        ("password='x token=s3cret'", "password='***'"),
        ("İİİ token: s3cret", "İİİ token: ***"),
        # headers and words
        ("Authorization: Bearer s3cret", "Authorization: Bearer ***"),
        ("Authorization: Basic czNjcmV0", "Authorization: Basic ***"),
        ("{'Authorization': 'Bearer s3cret.x-y_z'}", "{'Authorization': '***'}"),
        ("sent Bearer s3cret to it", "sent Bearer *** to it"),
        ("mysql --password s3cret -h db", "mysql --password *** -h db"),
        ("Command '['x', '--token', 's3cret']'", "Command '['x', '--token', '***']'"),
        # what tells by itself
        (f"key {AWS} is disabled", "key *** is disabled"),
        (f"bad credentials {GITHUB}!", "bad credentials ***!"),
        (f"jwt {JWT} expired", "jwt *** expired"),
        ("Incorrect API key provided: " + "sk-" + "s3cret" * 5, "Incorrect API key provided: ***"),
        (
            "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----***-----END PRIVATE KEY-----",
        ),
    ],
)  # fmt: skip
def test_a_secret_is_masked(text: str, masked: str) -> None:
    assert mask_credentials(text) == masked
    assert mask_credentials(masked) == masked


HARMLESS = """
max_tokens=100
token_dim: 64
key=value
KeyError: 'lr'
KeyError: 'token'
n_keys=3
tokenizer: bert
tokenizer=bert-base-uncased
tokens: 12, 14, 15
tokens=['a', 'b']
n_tokens=512, token_dropout=0.1
max_new_tokens: 64
token: 5
token=12
loss per token: 0.0231
bits_per_token=3.25
tokens per second: 1.2e4
pad_token='<pad>'
pad_token=[PAD]
eos_token: </s>
mask_token = [MASK]
pad_token_id=0
cls token: hello
unexpected token: hello
unknown token: hello
next_token: abc
token type ids: [0, 1]
token embedding (512, 64)
special_tokens={'bos': 1}
key: value
sort_key=name
primary_key=id
key=lambda x: x
sorted(rows, key=lambda row: row.score)
sorted(rows, key=len)
max(sizes, key=sizes.get)
key = (depth, width)
keys: a, b
keyboard: us
monkey=3
num_key_value_heads=8
key_dim=64, query_dim=64, value_dim=64
attention key: (32, 8)
password = None
password=None
password: str
password: str | None = None
password=''
password: Optional[str]
password = getpass.getpass()
password=getpass("Password")
password=password
connect(user=user, password=password)
connect(password=args.password, token=self.token)
password = os.environ["DB_PASSWORD"]
password=%s
password=%(password)s
password=${PASSWORD}
password={password}
token = ${oc.env:TOKEN}
f"token: {token}"
password=<password>
password=***
password: ...
passwords: 3 of 7
password authentication failed for user "ann"
no password supplied
fe_sendauth: no password supplied
password policy: strict
bypass=1
compass: north
passed: 12, failed: 3
passes=3
pass: 2
token = None
token = next(tokens)
token = tokens[i]
token = self.vocab.get(word)
token=token
token: str
token: int = 0
if token == end: break
assert token != ""
secret = None
secretary: ann
secrets: 3
api_key=None
api_key = os.getenv("API_KEY")
api_key=api_key
authorization: required
credentials: none
GOOGLE_APPLICATION_CREDENTIALS=/etc/google.json
bearer of bad news
missing bearer token
Bearer authentication
basic training
usage: login --token TEXT --password FILE
sk-learn is scikit-learn
hf_hub: offline
eyJ is how a token begins
risk-averse
PWD=/home/ann/work
pwd: /work
author: ann
authors=3
https://example.org/a?page=2&sort=key
http://127.0.0.1:5000/#/experiments/3
postgresql://ann@db/studies
postgresql://ann:${oc.env:PW}@db/studies
sqlite:////data/mlflow.db
ann@example.org
git@github.com:ann/repo.git
/home/ann/tokens/password.txt
C:\\Users\\ann\\key.pem
studies/brave-otter/checkpoints/trial-00007/best.pt
val_loss 0.0330 by trial 3 (depth 3, width 52, lr 0.0283)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x13 and 16x2)
RuntimeError: CUDA error: device-side assert triggered
CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity)
ValueError: Expected more than 1 value per channel when training, got input size [1, 64]
TypeError: f() got an unexpected keyword argument 'token_dim'
AttributeError: 'NoneType' object has no attribute 'token'
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
File "/srv/tokens.py", line 12, in tokenize
waiting: 11.2 GiB asked, 6.4 GiB room on GPU-8f3a12b4; 9.1 GiB held by pid 4121 (python, user ann)
go on with: python -m automl resume brave-otter
space.optimizer=sgd,adam training.epochs=20
""".strip().splitlines()


def test_there_are_more_than_a_hundred_harmless_texts() -> None:
    assert len(set(HARMLESS)) > 100


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert mask_credentials(text) == text
    assert mask_credentials(f"before {text}\nafter") == f"before {text}\nafter"


@pytest.mark.parametrize("text", ["password=s3cret", "token: s3cret", "Bearer s3cret-s3cret", AWS])
def test_what_is_masked_for_people_does_not_keep_a_setting_from_being_stored(text: str) -> None:
    assert mask_credentials(text) != text
    assert not carries_credential(text)


PIECES = st.sampled_from(
    [
        *(*" \n\"'\\:=,;&?-/@()[]{}*$.5xéİ", "token", "password", "API_KEY", "key", "Bearer "),
        *("--password ", "s3cret", "://", "http", "***", "None", "self.", "${x}", "{x}", "eyJ"),
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_masking_again_changes_nothing(text: str) -> None:
    once = mask_credentials(text)
    assert mask_credentials(once) == once


@given(st.lists(PIECES, max_size=6).map("".join), st.lists(PIECES, max_size=6).map("".join))
def test_what_stands_around_hides_no_secret(before: str, after: str) -> None:
    assert "hunter2hunter2" not in mask_credentials(f"{before} API_KEY=hunter2hunter2 {after}")
