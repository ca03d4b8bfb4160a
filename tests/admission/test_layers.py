"""A mapping of layers is what a dictionary would be, and what was made before stays as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from automl.admission.accounting.layered_mapping import LayeredMapping

entries = st.dictionaries(st.integers(0, 300), st.integers(), max_size=40)


@given(st.lists(entries, max_size=12))
def test_it_is_what_a_dictionary_would_be(changes: list[dict[int, int]]) -> None:
    layers, plain = LayeredMapping[int, int](), dict[int, int]()
    made = []
    for change in changes:
        layers, plain = layers.with_these(change), plain | change
        made.append((layers, plain))
    for layers, plain in made:
        assert layers == plain
        assert [*layers] == [*plain], "in the same order"
        assert len(layers) == len(plain)
        assert [layers.get(key, "none") for key in range(301)] == [
            plain.get(key, "none") for key in range(301)
        ]
