"""Values that templates print: a reader of the printed YAML gets them back unchanged."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfcluster_magic.kube.objects import templates


@example("0\n")
@given(
    st.recursive(
        st.text() | st.integers() | st.booleans() | st.none(),
        lambda below: st.lists(below) | st.dictionaries(st.text(max_size=40), below),
        max_leaves=12,
    )
)
def test_what_templates_print_is_read_again(value: object) -> None:
    """A value that is printed by the filter `json` or `yaml` is unchanged when the YAML is read
    again.
    """
    assert templates.load_yaml(templates.as_json(value)) == value
    assert templates.load_yaml(templates.as_yaml({"a": value})) == {"a": value}


def test_values_of_a_template_are_its_own() -> None:
    """The YAML of a template is parsed once, with a mark in place of each value, and used for later
    renderings. No value of one rendering occurs in another, even if the caller changes the returned
    objects, or if a value looks like a mark.
    """
    words = {"metadata": {"name": "\ue0000"}, "selector": {"a": "\ue0001"}, "port": 7}
    made = templates.render_object("kubernetes/service.yaml.j2", **words)
    assert made["metadata"] == {"name": "\ue0000"}
    assert made["spec"]["selector"] == {"a": "\ue0001"}
    made["spec"]["selector"]["a"] = "changed"
    made["spec"].clear()
    other = templates.render_object("kubernetes/service.yaml.j2", **{**words, "port": 8})
    assert other["spec"]["selector"] == {"a": "\ue0001"}
    assert other["spec"]["ports"][0]["port"] == 8


def test_templates_print_filtered_values_alone() -> None:
    """A template that prints a value without a filter is refused."""
    bare = templates._marking().from_string("name: {{ name }}")
    with pytest.raises(TypeError, match="must pass through"):
        bare.render(name="x\nkind: Secret")
