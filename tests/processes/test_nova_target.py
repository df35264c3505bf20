"""Migrations by Nova: the target against a Nova and a Keystone on the loopback."""

import logging
import sys
import time
import uuid
from contextlib import closing

import pytest

from scheduler_worker import conf
from scheduler_worker.backends import nova as backend
from scheduler_worker.backends.nova import compute_api
from scheduler_worker.backends.nova.compute_api import ComputeApi
from scheduler_worker.backends.nova.target import NovaTarget
from scheduler_worker.compose import checks, engines
from scheduler_worker.compose.parts import Parts
from scheduler_worker.errors import BackendError, MigrationRefused
from scheduler_worker.model.ledgers import AskedMigration, Progress
from tests.support import nova_api
from tests.support.json_server import Answer
from tests.support.nova_api import fault
from tests.support.patience import TooSoon, growing
from tests.support.servers import free_port
from tests.support.workers import write_config

VM = "9128d044-7b61-403e-b766-7547076ff6c1"
OTHER = "22341d4b-346a-40d0-83c6-5f4f6892b650"


@pytest.fixture
def nova():
    with nova_api.running_nova() as found:
        found.hosts |= {VM: "a", OTHER: "a"}
        yield found


@pytest.fixture
def configured(nova, tmp_path):
    """Makes a configuration with further options of ``[nova]``, or without those that are None."""

    def made(**options):
        group = {
            name: value
            for name, value in nova_api.options(nova, **options).items()
            if value is not None
        }
        config = write_config(
            tmp_path / "worker.conf",
            DEFAULT={"transport_url": "local://nova/"},
            balancing={"target": "nova"},
            nova=group,
        )
        return conf.load(["--config-file", str(config)])

    return made


@pytest.fixture
def target(configured):
    return NovaTarget(ComputeApi(configured()))


def asked(vm=VM, ago_s=0.0, source="a"):
    now_s = time.time() - ago_s
    return AskedMigration(
        id=str(uuid.uuid4()), vm=vm, source=source, candidates=("a", "b"), reason="",
        policy="even@1", asked_at_s=now_s, overdue_at_s=now_s + 120,
    )  # fmt: skip


def test_a_migration_is_asked_for_without_a_host(target, nova):
    migration = asked()
    target.migrate("east", migration)
    [sent] = nova.asked
    assert (sent.method, sent.path) == ("POST", f"/v2.1/servers/{VM}/action")
    assert sent.body == {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    assert sent.headers["OpenStack-API-Version"] == "compute 2.65"
    assert sent.headers["X-OpenStack-Request-ID"] == f"req-{migration.id}"


def test_refusals_have_the_message_of_nova(target, nova):
    nova.tasks[VM] = "migrating"
    conflict = r"409: Cannot 'os-migrateLive' instance .*migrating"
    with pytest.raises(MigrationRefused, match=conflict):
        target.migrate("east", asked())
    with pytest.raises(MigrationRefused, match=r"404: Instance gone could not be found\."):
        target.migrate("east", asked("gone"))
    nova.broken["POST"] = fault(400, "badRequest", "No migration with these disks.")
    with pytest.raises(MigrationRefused, match=r"400: No migration with these disks\."):
        target.migrate("east", asked())


def test_an_id_that_is_no_servers_reaches_no_other_path(target, nova):
    with pytest.raises(MigrationRefused, match="404"):
        target.migrate("east", asked(f"{VM}/migrations/1?x=../"))
    assert nova.tasks == {}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (fault(500, "computeFault", "Unexpected API Error."), r"500: Unexpected API Error\."),
        (Answer(503, b"<html>down</html>"), "503: Service Unavailable"),
        (fault(403, "forbidden", "Policy doesn't allow it."), "403: .*a role of an administrator"),
        (Answer(502, ["no", "fault"]), "502: Bad Gateway"),
        (None, "cannot be asked"),
    ],
)
def test_other_errors_leave_unknown_whether_it_will_be_done(target, nova, answer, message):
    nova.broken |= {"POST": answer, "GET": answer, "DELETE": answer}
    with pytest.raises(BackendError, match=message):
        target.migrate("east", asked())
    with pytest.raises(BackendError, match=message):
        target.progress([asked()])
    assert len(nova.asked_for("POST", "/action")) == 1, "it is not asked for again"


def test_a_nova_that_hangs_is_left_after_the_timeout(configured, nova):
    nova.answers.clear()

    def scene(timeout_s):
        target = NovaTarget(ComputeApi(configured(timeout=timeout_s, connect_retries=3)))
        nova.hosts[vm := f"vm-{timeout_s}"] = "a"
        with pytest.raises(BackendError, match="cannot be asked"):
            target.migrate("east", asked(vm))
        if not nova.asked_for("POST", f"/{vm}/action"):
            raise TooSoon("the log-in was too slow")
        return len(nova.asked_for("POST", f"/{vm}/action"))

    assert growing(scene, TooSoon) == 1, "retries are for questions alone"


def test_a_token_that_has_expired_is_renewed(target, nova):
    target.migrate("east", asked())
    nova.keystone.tokens.clear()
    target.migrate("east", asked(OTHER))
    assert [each.path.split("/")[3] for each in nova.asked] == [VM, OTHER]


def test_a_keystone_or_nova_that_is_away_is_named(configured, nova):
    away = f"http://127.0.0.1:{free_port()}"
    for options in ({"auth_url": f"{away}/v3"}, {"endpoint_override": away}):
        api = ComputeApi(configured(**options))
        with pytest.raises(BackendError, match=f"Nova cannot be asked: .*{away}"):
            NovaTarget(api).migrate("east", asked())
    with pytest.raises(BackendError, match=r"Nova cannot be asked: .*401"):
        NovaTarget(ComputeApi(configured(password="wrong"))).migrate("east", asked())


def test_the_progress_of_many_migrations_costs_one_question(target, nova):
    first, second = asked(), asked(OTHER)
    nova.migrate(VM, "running", dest_compute="b")
    nova.migrate(OTHER, "error")
    found = target.progress([first, second])
    assert found[first.id] == Progress(state="started", destination="b")
    assert found[second.id].state == "refused"
    assert len(nova.asked) == 1


def test_all_pages_back_to_the_first_ask_are_read(target, nova, monkeypatch):
    monkeypatch.setattr(compute_api, "_PAGE", 3)
    nova.migrate(OTHER, "completed", created_at=nova_api.ago(7200))
    migration = asked(ago_s=600)
    nova.migrate(VM, "completed", dest_compute="b", created_at=nova_api.ago(590))
    for number in range(5):
        nova.migrate(f"vm{number}", "completed")
    assert target.progress([migration])[migration.id].state == "done"
    assert [each.query.get("marker") for each in nova.asked] == [
        None, nova.migrations[4]["uuid"], nova.migrations[1]["uuid"]
    ]  # fmt: skip


def test_pages_older_than_the_first_ask_are_not_read(target, nova, monkeypatch):
    monkeypatch.setattr(compute_api, "_PAGE", 2)
    for hours in (5, 4, 3, 2, 1):
        nova.migrate(OTHER, "completed", created_at=nova_api.ago(3600 * hours))
    target.progress([asked()])
    assert len(nova.asked_for("GET", "/os-migrations")) == 1


def test_a_vm_of_which_nova_lists_nothing_is_where_its_server_is(target, nova):
    unmoved, moved, gone = asked(), asked(OTHER), asked("gone")
    nova.hosts[OTHER] = "d"
    found = target.progress([unmoved, moved, gone])
    assert found.keys() == {moved.id, gone.id}
    assert found[moved.id] == Progress(state="done", destination="d")
    assert found[gone.id].state == "failed"
    assert "could not be found" in found[gone.id].why


def test_a_server_on_which_nova_works_is_on_its_way(target, nova):
    migration = asked()
    target.migrate("east", migration)
    nova.hosts[VM] = "b"
    assert target.progress([migration]) == {}


def test_a_server_that_cannot_be_shown_does_not_hide_the_other_migrations(target, nova):
    first, second = asked(), asked(OTHER)
    nova.migrate(OTHER, "running", dest_compute="b")
    answer = nova._shown
    nova._shown = lambda server: fault(500, "computeFault", "broken")
    assert target.progress([first, second]).keys() == {second.id}
    nova._shown = answer


@pytest.mark.parametrize(
    "document",
    [b"", b"no json", [], {"migrations": [{"id": "x"}]}, {"migrations": None}, {"servers": []}],
)
def test_answers_that_are_none_are_errors(target, nova, document):
    nova.broken["GET"] = Answer(200, document)
    with pytest.raises(BackendError, match="GET /os-migrations cannot be read"):
        target.progress([asked()])


def test_an_overdue_migration_is_aborted_in_the_queue(target, nova):
    migration = asked()
    target.migrate("east", migration)
    row = nova.migrate(VM, "queued", dest_compute="b")
    target.withdraw(migration)
    assert row["status"] == "cancelled"
    [sent] = nova.asked_for("DELETE", f"/servers/{VM}/migrations/{row['id']}")
    assert sent.headers["OpenStack-API-Version"] == "compute 2.65"
    target.withdraw(migration)
    assert len(nova.asked_for("DELETE", "")) == 1, "one that has ended is not aborted"


def test_what_cannot_be_aborted_is_only_logged(target, nova, caplog):
    nova.migrate(VM, "post-migrating", dest_compute="b")
    target.withdraw(asked())
    assert "not aborted: Nova answers 400: Migration 1 state of instance" in caplog.text


def test_an_abort_of_which_nothing_is_known_is_an_error(target, nova):
    nova.migrate(VM, "queued", dest_compute="b")
    nova.broken["DELETE"] = None
    with pytest.raises(BackendError):
        target.withdraw(asked())


def test_nothing_is_withdrawn_that_nova_never_had(target, nova):
    nova.migrate(VM, "running", created_at=nova_api.ago(3600))
    target.withdraw(asked())
    assert nova.asked_for("DELETE", "") == []


# The configuration


def refusals(loaded):
    return checks.refusals(loaded, embedded=False)


def test_check_config_names_what_is_missing(configured):
    assert refusals(configured()) == []
    assert conf.unread(configured()) == []
    for options, wanted in (
        ({"auth_type": None}, "[nova] auth_type: not set"),
        ({"auth_type": "telepathy"}, "[nova]: The plugin telepathy could not be found"),
        (
            {"auth_url": None},
            "[nova]: Auth plugin requires parameters which were not given: auth_url",
        ),
        ({"timeout": "soon"}, "[nova]: "),
        ({"timeout": 0}, "[nova] timeout: 0.0 s is no time to wait"),
    ):
        [problem] = refusals(configured(**options))
        assert problem.startswith(wanted)
    assert "did you mean username" in conf.unread(configured(usernam="x"))[0]


def test_options_of_other_kinds_of_log_in_are_known(configured):
    others = {"application_credential_id": "i", "application_credential_secret": "s"}
    loaded = configured(**others, auth_type="v3applicationcredential")
    assert refusals(loaded) == []
    unknown = " ".join(conf.unread(loaded))
    assert "[nova] password is no option" in unknown
    assert "application_credential" not in unknown


def test_the_section_of_another_service_may_be_used(nova, tmp_path):
    account = nova_api.options(nova)
    path = write_config(
        tmp_path / "worker.conf",
        balancing={"target": "nova"},
        nova={"auth_section": "keystone_authtoken", "region_name": "r"},
        keystone_authtoken=account,
    )
    loaded = conf.load(["--config-file", str(path)])
    api = engines.open_nova(loaded)
    assert api.problem() is None


def test_check_connections_asks_nova(configured, nova):
    def problem():
        loaded = configured()
        found = checks.connections(loaded, conf.settings(loaded))
        [problem] = [each.problem for each in found if each.name == "Nova"]
        return problem or ""

    assert problem() == ""
    nova.newest = (2, 60)
    assert problem() == (
        "Nova answers 406: Version 2.65 is not supported by the API.; "
        "microversion 2.65, of Rocky, is needed"
    )
    nova.newest = (2, 65)
    nova.broken["GET"] = None
    assert problem().startswith("Nova cannot be asked: ")


@pytest.fixture
def without_library(monkeypatch):
    """As where the extra is not installed."""
    monkeypatch.setitem(sys.modules, "keystoneauth1", None)
    for name in ("compute_api", "options", "target"):
        monkeypatch.delitem(sys.modules, f"{backend.__name__}.{name}", raising=False)
        monkeypatch.delattr(backend, name, raising=False)


def test_without_the_library_its_options_are_not_read(configured, without_library):
    [first, *_] = conf.unread(configured())
    assert "[nova] auth_type is no option that is read" in first


def test_without_nova_neither_its_options_are_read_nor_its_library(tmp_path, without_library):
    path = write_config(tmp_path / "worker.conf", nova={"auth_type": "password"})
    loaded = conf.load(["--config-file", str(path)])
    with closing(Parts(conf.settings(loaded), loaded)) as parts:
        assert parts.balancer
    [sentence] = conf.unread(loaded)
    assert "[nova] auth_type is no option that is read" in sentence


def test_the_password_is_not_shown(configured, caplog):
    loaded = configured()
    ComputeApi(loaded)
    with caplog.at_level("DEBUG"):
        loaded.log_opt_values(logging.getLogger(), logging.DEBUG)
    assert "nova.password" in caplog.text
    assert "service secret" not in caplog.text
