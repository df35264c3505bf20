"""Who may do what, by role and scope, and with an operator's rules."""

import pytest

from scheduler_worker.errors import ConfigError
from scheduler_worker.operations import OPERATIONS
from scheduler_worker.operations.callers import ROLES, Caller, Grant, Right
from scheduler_worker.operations.rights import Rights


@pytest.fixture(scope="module")
def rights():
    return Rights()


def caller(*grants):
    return Caller("anna", tuple(Grant(*each) for each in grants), "192.0.2.1")


SYSTEM_EDITOR = caller(("policy_editor", None))
IN_A_CLUSTER = {
    Right.READ: "reader",
    Right.CREATE: "policy_editor",
    Right.EDIT: "policy_editor",
    Right.DELETE: "policy_editor",
    Right.ATTACH: "policy_editor",
    Right.REHEARSE: "policy_editor",
    Right.RELEASE: "administrator",
    Right.SWITCH_BALANCING: "administrator",
}
"""The least role that has the right in a cluster in which it is held."""
IN_THE_SYSTEM = IN_A_CLUSTER | {
    Right.DELETE_UNIT: "administrator",
    Right.SWITCH_UNIT: "administrator",
    Right.EDIT_TUNING: "policy_editor",
    Right.DRAIN: "administrator",
    Right.READ_AUDIT: "administrator",
}
"""The same of a role in the system."""


OVER_RPC_ALONE = {
    "get_cluster_policy": Right.READ,
    "attach_cluster_policy": Right.ATTACH,
    "detach_cluster_policy": Right.ATTACH,
    "list_stored_decisions": Right.READ,
    "get_statistics": Right.READ,
    "get_worker": Right.READ,
    "drain_worker": Right.DRAIN,
    "resume_worker": Right.DRAIN,
    "list_records": Right.READ,
}
"""The rights to operations without a path. The reference of REST has the others'."""


def test_operations_over_rpc_alone_need_these_rights():
    assert {each.name: each.right for each in OPERATIONS if each.path is None} == OVER_RPC_ALONE


def holders(rights, action, held_in, clusters):
    """The roles that have the right in these clusters when they are held there."""
    return [role for role in ROLES if rights.may(caller((role, held_in)), action, clusters)]


@pytest.mark.parametrize("action", Right)
def test_each_right_has_a_least_role_in_a_cluster_and_in_the_system(rights, action):
    def and_above(least):
        return [] if least is None else list(ROLES[ROLES.index(least) :])

    for clusters in (None, [], ["a"]):
        assert not rights.may(caller(), action, clusters)
        in_a = holders(rights, action, "a", clusters)
        assert in_a == and_above(IN_A_CLUSTER.get(action)), clusters
        in_all = holders(rights, action, None, clusters)
        assert in_all == and_above(IN_THE_SYSTEM[action]), clusters
    assert holders(rights, action, "a", ["b"]) == holders(rights, action, "a", ["a", "b"]) == []
    assert holders(rights, action, None, ["a", "b"]) == in_all


EDITOR_OF_BOTH = caller(("policy_editor", "a"), ("administrator", "b"))
READER_OF_ALL = caller(("reader", None), ("policy_editor", "a"))


@pytest.mark.parametrize(
    ("who", "action", "clusters", "expected"),
    [
        (EDITOR_OF_BOTH, Right.EDIT, ["a", "b"], True),
        (EDITOR_OF_BOTH, Right.DELETE, ["a", "b", "c"], False),
        (EDITOR_OF_BOTH, Right.RELEASE, ["a"], False),
        (READER_OF_ALL, Right.READ, ["a", "b"], True),
        (READER_OF_ALL, Right.EDIT, ["a"], True),
        (READER_OF_ALL, Right.EDIT, ["b"], False),
    ],
)
def test_each_of_several_roles_counts_in_its_own_scope(rights, who, action, clusters, expected):
    assert rights.may(who, action, clusters) is expected


def test_an_operators_rule_replaces_the_default(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text('"policy:create": "user:boss"\n')
    rights = Rights(str(path))
    assert not rights.may(SYSTEM_EDITOR, Right.CREATE)
    assert rights.may(SYSTEM_EDITOR._replace(name="boss"), Right.CREATE)
    assert rights.may(SYSTEM_EDITOR, Right.EDIT, ["a"])


@pytest.mark.parametrize(
    "text", [None, "{", '"policy:create": "rule:nothing_of_that_name"\n'], ids=["no file", "", "x"]
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, text):
    path = tmp_path / "policy.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"\[api\] policy_file"):
        Rights(str(path))


def test_a_file_that_becomes_unusable_leaves_the_rights_as_they_were(tmp_path, caplog):
    path = tmp_path / "policy.yaml"
    path.write_text('"policy:create": "!"\n')
    rights = Rights(str(path))
    for broken in ("{", '"policy:create": "rule:nothing_of_that_name or @"\n', None):
        path.unlink()
        if broken is not None:
            path.write_text(broken)
        for _ in range(2):
            assert not rights.may(SYSTEM_EDITOR, Right.CREATE)
    assert caplog.text.count("what was read before stays in force") == 3
    path.write_text('"policy:create": "@"\n')
    assert rights.may(SYSTEM_EDITOR, Right.CREATE)


def token(**scope):
    """The caller of a Keystone token with these credentials."""
    return Caller("anna@Corp (1)", (), "192.0.2.1", {"user": "anna@Corp", "user_id": "1", **scope})


@pytest.mark.parametrize(
    ("who", "action", "clusters", "expected"),
    [
        (token(roles=["reader"], system_scope="all"), Right.READ, None, True),
        (token(roles=["reader"], system_scope="all"), Right.EDIT, ["a"], False),
        (token(roles=["reader", "policy_editor"], system_scope="all"), Right.EDIT, ["a"], True),
        (token(roles=list(ROLES), system_scope="all"), Right.DELETE_UNIT, None, True),
        (token(roles=list(ROLES), project_id="p"), Right.READ, None, False),
        (token(roles=list(ROLES), project_id="p"), Right.DELETE_UNIT, None, False),
        (token(roles=[], system_scope="all"), Right.READ, None, False),
    ],
)
def test_a_keystone_token_has_rights_by_its_scope(rights, who, action, clusters, expected):
    assert rights.may(who, action, clusters) is expected


def test_rules_may_name_projects_and_users_of_keystone(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text('"policy:edit": "project_id:p and role:reader"\n"unit:delete": "user_id:1"\n')
    rights = Rights(str(path))
    assert rights.may(token(roles=["reader"], project_id="p"), Right.EDIT, ["a", "b"])
    assert not rights.may(token(roles=["reader"], project_id="q"), Right.EDIT, ["a"])
    assert rights.may(token(roles=[]), Right.DELETE_UNIT)
    assert not rights.may(token(roles=[], user_id="2"), Right.DELETE_UNIT)
