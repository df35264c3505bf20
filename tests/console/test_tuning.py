"""The pages of tuning: policies and what is wrong with them, hosts, values and their rules."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from scheduler_worker.compose.api import ApiProcess, build_embedded
from tests.support.agents import Agent
from tests.support.consoles import READER, configured, fill, lines, report
from tests.support.services import host

CPU = """\
scope: VM
rules:
  quota: {output: cpu.quota, target: 40}
  busy: {output: cpu.quota, target: 80, when: vm.is_busy}
  slow:
    output: memory.balloon
    target: 0
    min_absolute_change: 400
"""
KSM = """\
scope: Host
rules:
  run: {output: ksm.run, target: 1}
"""
BROKEN = KSM.replace("target", "targett")
VMS = {
    "web": {"vm": {"is_busy": True}, "memory": {"balloon": 300}},
    "db": {"vm": {"is_busy": False}, "memory": {"balloon": 0}},
}


@pytest.fixture
def policies(tmp_path, monkeypatch):
    """The directory of the operator's policies, as the options name it."""
    monkeypatch.chdir(tmp_path)
    found = Path("tuning")
    found.mkdir()
    (found / "cpu.yaml").write_text(CPU)
    (found / "ksm.yaml").write_text(KSM)
    return found


@pytest.fixture
def api(tmp_path, policies) -> Iterator[ApiProcess]:
    """A worker that tunes six hosts; the agents of two take what they are sent."""
    tuning = {"enabled": True, "interval": 0.2, "policy_files": policies}
    with build_embedded(configured(tmp_path, tuning=tuning)).running() as found:
        agents = [
            Agent(found.worker.bus, "tuning_agent", name, apply_tuning=lambda _, **sent: None)
            for name in ("a1", "b1")
        ]
        fill(found.services.inventory)
        report(found.services.inventory, host("a1", cluster="east", vcpus=16, vms=VMS))
        yield found
        for each in agents:
            each.close()


HOSTS = "What was set on hosts, VMs and disks"


def test_the_rules_of_each_value_are_seen_and_what_is_held_back(console):
    page = console.entered("/tuning")
    row = lines(page, HOSTS).filter(has=page.get_by_role("link", name="a1"))
    expect(row).to_contain_text(re.compile(r"east\d+ s ago\d+ s ago31\d+ s ago"))
    row.get_by_role("link").click()
    values = lines(page, "As they were sent to the agent last")
    expect(values).to_have_count(3)
    expect(values.filter(has_text="VM web")).to_contain_text("cpu.quota60cpu:quota, cpu:busy")
    expect(values.filter(has_text="VM db")).to_contain_text("cpu.quota40cpu:quota")
    expect(values.filter(has_text="the host")).to_contain_text("ksm.run1ksm:run")
    console.check("tuned-host")
    held = lines(page, "Changes that are too small yet")
    expect(held).to_contain_text("VM webmemory.ballooncpu:slowdown")
    held.get_by_role("link").click()
    expect(page.get_by_role("heading", name="cpu", exact=True)).to_be_visible()


@pytest.mark.deep
def test_a_change_appears_by_itself(api, console):
    page = console.entered("/tuning/hosts/uuid-a1")
    values = lines(page, "As they were sent to the agent last")
    expect(values.filter(has_text="VM db")).to_contain_text("cpu.quota40cpu:quota")
    busy = VMS | {"db": VMS["db"] | {"vm": {"is_busy": True}}}
    report(api.services.inventory, host("a1", cluster="east", vcpus=16, vms=busy))
    expect(values.filter(has_text="VM db")).to_contain_text("cpu.quota60cpu:quota, cpu:busy")


@pytest.mark.deep
def test_hosts_are_found_by_name_and_cluster_and_these_are_in_the_address(console):
    page = console.entered("/tuning")
    listed = lines(page, HOSTS)
    expect(listed).to_have_count(6)
    page.get_by_label("Cluster").select_option("east")
    expect(listed).to_have_count(3)
    page.get_by_label("Search").fill("A1")
    page.get_by_label("Search").press("Enter")
    expect(listed).to_have_count(1)
    page.reload()
    expect(listed).to_have_count(1)
    expect(page.get_by_label("Cluster")).to_have_value("east")
    page.get_by_label("Search").fill("nothing")
    page.get_by_label("Search").press("Enter")
    expect(page.locator("#found")).to_have_text("No host that was tuned within a day")


@pytest.mark.deep
def test_problems_of_a_file_are_shown_at_their_place_until_it_is_mended(policies, console):
    page = console.entered("/tuning")
    alarms = page.locator("#alarms")
    expect(alarms).to_contain_text("in force as they are written")
    (policies / "ksm.yaml").write_text(BROKEN)
    expect(alarms.get_by_role("status")).to_contain_text("2 problems")
    shown = alarms.locator("li").last
    expect(shown).to_contain_text("ksm: tuning/ksm.yaml, line 3, column 26")
    expect(shown).to_contain_text("did you mean target?")
    expect(shown.locator("pre")).to_have_text("  run: {output: ksm.run, targett: 1}")
    expect(shown.locator("mark")).to_have_text("t")
    console.check("tuning")
    (policies / "ksm.yaml").write_text(KSM)
    expect(alarms).to_contain_text("in force as they are written")


def edited(page, text):
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Save").click()


def texts(api):
    """The policies, by name."""
    return {policy.name: policy.text for policy in api.services.tuning.current()}


def test_a_policy_is_set_in_place_of_a_file_and_withdrawn(api, console):
    page = console.entered("/tuning")
    page.get_by_role("link", name="ksm").click()
    expect(page.get_by_text("From the file")).to_be_visible()
    expect(page.get_by_role("button", name="Withdraw")).to_be_hidden()
    edited(page, KSM.replace("1}", "0}"))
    expect(page.locator("#said")).to_contain_text("in force in all workers")
    expect(page.get_by_role("heading", name="ksm set")).to_be_visible()
    assert "target: 0" in texts(api)["ksm"]
    edited(page, KSM.replace("1}", "2}"))
    expect(page.locator("#said")).to_contain_text("in force in all workers")
    page.get_by_role("button", name="Withdraw").click()
    page.get_by_role("dialog").get_by_role("button", name="Withdraw").click()
    row = lines(page, "Tuning policies in force").filter(has_text="ksm")
    expect(row).to_contain_text("ksm.yaml")
    assert texts(api)["ksm"] == KSM


@pytest.mark.deep
def test_issues_of_a_text_are_below_it_and_nothing_is_lost(api, console):
    page = console.entered("/tuning/new")
    page.get_by_label("Name").fill("mine")
    edited(page, BROKEN)
    expect(page.get_by_role("alert").first).to_contain_text("the text has 2 issues")
    issue = page.locator("#issues li").last
    expect(issue).to_contain_text("did you mean target?")
    expect(issue.locator("mark")).to_have_text("t")
    console.check()
    expect(page.get_by_label("Text", exact=True)).to_have_value(BROKEN)
    assert "mine" not in texts(api)
    issue.get_by_role("button", name="Line 3, column 26").click()
    expect(page.get_by_label("Text", exact=True)).to_be_focused()
    page.keyboard.type("x")
    expect(page.get_by_label("Text", exact=True)).to_have_value(
        BROKEN.replace("targett", "xtargett")
    )
    edited(page, KSM)
    expect(page.get_by_role("heading", name="mine set")).to_be_visible()
    assert texts(api)["mine"] == KSM


@pytest.mark.deep
def test_a_change_that_another_made_meanwhile_is_shown_and_not_overwritten(api, console):
    page = console.entered("/tuning/policies/ksm")
    theirs, ours = KSM.replace("1}", "2}"), KSM.replace("1}", "3}")
    expect(page.get_by_label("Text", exact=True)).to_have_value(KSM)
    api.services.tuning.set("ksm", theirs)
    edited(page, ours)
    expect(page.get_by_role("alert").first).to_contain_text("has changed in the meantime")
    expect(page.get_by_role("region", name="Its text now")).to_have_text(theirs)
    expect(page.get_by_label("Text", exact=True)).to_have_value(ours)
    assert texts(api)["ksm"] == theirs
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#said")).to_contain_text("in force in all workers")
    assert texts(api)["ksm"] == ours
    api.services.tuning.set("ksm", None)
    edited(page, theirs)
    expect(page.locator("#other")).to_contain_text(KSM)


@pytest.mark.deep
def test_a_policy_that_was_withdrawn_meanwhile_is_set_again_on_purpose_only(api, console):
    api.services.tuning.set("mine", KSM)
    page = console.entered("/tuning/policies/mine")
    expect(page.get_by_role("heading", name="mine set")).to_be_visible()
    api.services.tuning.set("mine", None)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#other")).to_contain_text("It was withdrawn")
    assert "mine" not in texts(api)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#said")).to_contain_text("in force in all workers")
    assert texts(api)["mine"] == KSM


@pytest.mark.deep
def test_a_text_is_still_there_after_the_session_has_ended(api, console):
    page = console.entered("/tuning/policies/ksm")
    theirs, ours = KSM.replace("1}", "2}"), KSM.replace("1}", "3}")
    expect(page.get_by_label("Text", exact=True)).to_have_value(KSM)
    console.context.clear_cookies()
    api.services.tuning.set("ksm", theirs)
    edited(page, ours)
    console.log_in()
    expect(page.get_by_label("Text", exact=True)).to_have_value(ours)
    expect(page.locator("#said")).to_contain_text("not saved yet")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").first).to_contain_text("has changed in the meantime")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#said")).to_contain_text("in force in all workers")
    page.get_by_role("link", name="Tuning").first.click()
    page.get_by_role("link", name="ksm").click()
    expect(page.locator("#said")).to_be_empty()
    assert texts(api)["ksm"] == ours


@pytest.mark.deep
def test_a_reader_reads_only(console):
    page = console.entered("/tuning", READER)
    expect(lines(page, "Tuning policies in force")).to_have_count(2)
    expect(page.get_by_role("link", name="New tuning policy")).to_have_count(0)
    page.get_by_role("link", name="cpu").click()
    expect(page.get_by_role("region", name="Text")).to_have_text(CPU)
    for name in ("Save", "Withdraw"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
