"""Canonical JSON and names: against values worked out by hand and the published SHA-256 test vector."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soopf_jax.runtime.hashing import canonical, digest, file_sha256, sha256, slug


def test_canonical_json_is_sorted_and_tight():
    assert canonical({"b": (1, 2.5), "a": None}) == b'{"a":null,"b":[1,2.5]}'


def test_sha256_of_abc_is_the_published_one(tmp_path):
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    (tmp_path / "abc").write_bytes(b"abc")
    assert file_sha256(tmp_path / "abc") == sha256(b"abc")
    assert digest("abc") == sha256(b'"abc"')


@pytest.mark.parametrize("value", [float("nan"), [float("inf")]])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical(value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("hf:../encoders/ViT S", "hf-..-encoders-ViT-S"), ("--a b--", "a-b"), ("v1.2", "v1.2"), ("../x", "x")],
)
def test_slugs(name, expected):
    assert slug(name) == expected


@given(st.text())
def test_a_slug_is_a_plain_name_and_stays_the_same(name):
    found = slug(name)
    assert "/" not in found
    assert not found.startswith((".", "-"))
    assert slug(found) == found
