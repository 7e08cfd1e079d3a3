"""The hub's policy: grants of groups, and messages about mistakes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.project import ROOT

from tfcluster_magic.hub.tenancy.entitlements import Grant
from tfcluster_magic.hub.tenancy.policy import (
    Entitlement,
    entitlement_for_groups,
    parse_policy,
)
from tfcluster_magic.quota.policy_file import InvalidPolicy

SHIPPED = ROOT / "hub_config" / "policy.yaml"
GROUPS = """
default:
  quota: {cpu: 8, memory: 32Gi}
  egress: [10.0.0.0/8]
groups:
  students: {priority: 1, quota: {cpu: 2}}
  vision: {priority: 5, quota: {gpu: 2, memory: null}, egress: []}
  audio: {priority: 5, quota: {gpu: 1}}
"""


def test_an_empty_policy_says_the_defaults() -> None:
    """An empty policy gives every user the defaults, among them a single size of notebook."""
    assert entitlement_for_groups(parse_policy(""), ["any"]) == Entitlement(Grant(), "")
    assert [size.name for size in Grant().sizes] == ["small"]


def test_the_policy_that_is_shipped_can_be_used() -> None:
    """hub_config/policy.yaml is valid."""
    assert [size.name for size in parse_policy(SHIPPED.read_text()).default.sizes] == [
        "small",
        "large",
    ]


@pytest.mark.parametrize(
    ("groups", "by"),
    [
        ([], ""),
        (["unknown"], ""),
        (["students"], "students"),
        (["students", "vision", "unknown"], "vision"),
        (["vision", "audio", "students"], "audio"),
    ],
)
def test_the_highest_priority_counts_and_the_name_between_equals(
    groups: list[str], by: str
) -> None:
    """For a member of several groups, the group with the highest priority decides, then the first
    by name.
    """
    assert entitlement_for_groups(parse_policy(GROUPS), groups).group == by


def test_a_group_lies_over_the_default_word_by_word() -> None:
    """A group changes only its own keys, and replaces lists as a whole; null removes a limit."""
    policy = parse_policy(GROUPS)
    students, vision = (entitlement_for_groups(policy, [g]).grant for g in ("students", "vision"))
    assert (students.quota.cpu, students.quota.memory, students.egress) == (
        2,
        "32Gi",
        ("10.0.0.0/8",),
    )
    assert (vision.quota.cpu, vision.quota.memory, vision.quota.gpu) == (8, None, 2)
    assert vision.egress == ()


MISTAKES = [
    ("default:\n  quota:\n    cpu: many\n", 3, "default.quota.cpu: got 'many'; a number of cores"),
    (
        "default:\n  quotas: 1\n",
        2,
        "default.quotas: there is no such field; did you mean quota?",
    ),
    ("groups:\n  a:\n    sizes:\n      - name: x\n        foo: 1\n", 5, "groups.a.sizes[0].foo"),
    ("default: {\n", 2, "it is not valid YAML"),
    ("default: {}\nimages: []\ndefault: {}\n", 3, "default is repeated"),
    ("- 1\n", 1, "got [1]; a mapping with the fields default, dns, etcdBudget"),
    (
        "default:\n  sizes:\n    - name: A B\n",
        3,
        "at most 40 lower-case letters, digits and hyphens",
    ),
    ("default:\n  sizes: []\n", 2, "at least one size"),
    ("default:\n  sizes:\n    - {name: a}\n    - {name: a}\n", 2, "a occurs twice"),
    ("default:\n  egress:\n    - 10.0.0.0/8\n    - here\n", 4, "default.egress[1]: 'here'"),
    ("default:\n  egress:\n    - 168.63.129.16\n", 3, "egress[0]: 168.63.129.16 is never opened"),
    ("dns: []\n", 1, "dns: there must be one DNS server at least"),
    ("dns:\n  - {network: 169.254.0.0/16}\n", 1, "only one of its addresses, on port 53"),
    (
        "images:\n  - {name: a, image: An Image}\n",
        2,
        "images[0].image: got 'An Image'; it is not an",
    ),
    (
        "groups:\n  a: {requireDigest: true}\nimages:\n  - {name: a, image: x}\n",
        4,
        (
            "a group requires images with a digest. To find the digest: "
            "`docker buildx imagetools inspect x`"
        ),
    ),
    ("default:\n  limits:\n    max: {cpu: 1}\n    default: {cpu: 2}\n", 4, "2.0 is more than 1.0"),
    (
        "default:\n  sizes:\n    - name: a\n      memory: 2Gi\n      memoryLimit: 1Gi\n",
        5,
        "2Gi is more than 1Gi",
    ),
    ("default:\n  budget:\n    cpuHours: -1\n", 3, "budget.cpuHours: got -1; a number of hours"),
    ("default:\n  budget:\n    cpuHours: .inf\n", 3, "budget.cpuHours: got 'inf'; use a finite"),
    ("default: {quota: {pods: " + "9" * 5000 + "}}\n", 1, "it is not valid YAML"),
    ("default:\n  budget: {days: 91}\n", 2, "got 91; a whole number of days from 1 to 90"),
    (
        "groups:\n  a:\n    budget:\n      hours: 3\n",
        4,
        "there is no such field; the fields are cpuHours, days, gpuHours",
    ),
    ("default:\n  priority: 3\n", 2, "there is no such field"),
    ("default: {sharedData: [{name: log, path: /x, volume: v}]}\n", 1, "log occurs twice"),
    ("default: {sharedData: [{name: a, path: /x}]}\n", 1, "set either volume or class"),
    (
        "default:\n  idle: {cull: 2h}\n",
        2,
        "got '2h'; a number of seconds above 0, at most 31622400, such as 7200, or null",
    ),
    ("onRemoval: burn\n", 1, "got 'burn'; use one of delete, keep"),
    (
        "groups:\n  a: {}\n  b: {sizes: [{cpu: 1}]}\n",
        3,
        "groups.b.sizes[0]: the field name is required",
    ),
    ("default: {storage: {class: 3}}\n", 1, "default.storage.class: got 3; a StorageClass with"),
]


@pytest.mark.parametrize(("text", "line", "said"), MISTAKES)
def test_a_mistake_is_told_with_its_line_and_what_is_allowed(
    text: str, line: int, said: str
) -> None:
    """Each mistake is reported with its line and the allowed values."""
    with pytest.raises(InvalidPolicy) as caught:
        parse_policy(text)
    assert [each.line for each in caught.value.mistakes] == [line]
    assert str(caught.value).startswith(f"line {line}: ")
    assert said in str(caught.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["default", "groups", "sizes", "quota", "cpu", "a", "placement", "name"]
            )
            | st.integers(0, 3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(VALUES)
def test_whatever_stands_in_the_file_is_a_policy_or_a_mistake(value: object) -> None:
    """For any YAML, the result is a policy, or a mistake whose line exists in the file."""
    import yaml

    text = yaml.safe_dump(value)
    try:
        parse_policy(text)
    except InvalidPolicy as error:
        assert all(1 <= each.line <= text.count("\n") + 1 for each in error.mistakes)
