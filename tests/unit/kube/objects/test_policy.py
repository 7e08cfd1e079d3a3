"""The operator's policy as read from YAML."""

from __future__ import annotations

import pytest

from tfcluster_magic.kube.objects.policy import Policy, parse_policy
from tfcluster_magic.quota.policy_file import InvalidPolicy


def test_a_policy_is_read_from_yaml() -> None:
    """A file overrides defaults; an empty file keeps all defaults."""
    assert parse_policy("") == Policy()
    read = parse_policy("defaultImage: registry/x\negress: [10.0.0.0/8]\ngang: true\n")
    assert (read.default_image, read.egress, read.gang) == ("registry/x", ("10.0.0.0/8",), True)
    dns = parse_policy("dns: [{network: 169.254.20.10}, {namespace: a, pods: b=c, port: 5353}]").dns
    assert [(each.network, each.port) for each in dns] == [("169.254.20.10", 53), ("", 5353)]
    assert (parse_policy("gang: auto").gang, parse_policy("gang: false").gang) == ("auto", False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line 1: it is not valid YAML"),
        ("defualtImage: x", "there is no such field; did you mean defaultImage?"),
        ("\ndefaultCpu: -1", "line 2: defaultCpu: got -1; a number of cores above 0"),
        ("egress: [nowhere]", "nowhere"),
        ("egress: [0.0.0.0/0, 169.254.169.254/32]", "169.254.169.254/32 is never opened"),
        ("dns: []", "one DNS server at least"),
        ("dns: [{namespace: kube-system, pods: kube-dns}]", "dns[0].pods"),
        ("dns: [{network: 169.254.0.0/16}]", "only one of its addresses"),
        ("images: ['registry.example.com/*', 'a b*']", "it is not an image pattern"),
        ("defaultImage: Notebook", "it is not an image reference"),
        ("maxDuration: .inf", "maxDuration: got 'inf'; use a finite number"),
        ("maxTasks: " + "9" * 5000, "it is not valid YAML"),
        ("monitoring: {grafanaUrl: 'javascript:alert(1)'}", "monitoring.grafanaUrl"),
        ("monitoring: {grafanaUrl: 'https://me:secret@grafana.example.com'}", "grafanaUrl"),
        ("monitoring: {grafanaUrl: 'https://grafana.example.com/?orgId=1'}", "grafanaUrl"),
    ],
)
def test_a_wrong_policy_is_refused(text: str, said: str) -> None:
    """An invalid policy is refused with its problems."""
    with pytest.raises(InvalidPolicy, match="line ") as refusal:
        parse_policy(text)
    assert said in str(refusal.value)
