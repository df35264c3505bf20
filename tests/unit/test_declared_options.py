"""Annotated fields become options, and values of options become structs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta
from oslo_config import cfg

from scheduler_worker import conf
from scheduler_worker.conf.declared import DEFAULT, Table
from scheduler_worker.options import Opt
from tests.support.workers import write_config

Colour = Literal["red", "green"]


class Part(msgspec.Struct, frozen=True):
    size_mb: Annotated[int, Meta(ge=1), Opt(max=9)] = 2
    """Of the part."""


class Optional(msgspec.Struct, frozen=True, kw_only=True):
    enabled: Annotated[bool, Opt()] = False
    url: Annotated[str, Opt(secret=True)]


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    wait_s: Annotated[float, Opt(min=0, max=60, mutable=True)] = 2.0
    """Seconds that
    something waits."""
    port: Annotated[int, Opt(form="port")] = 0
    address: Annotated[str, Opt(form="host", name="listen")] = "::1"
    topic: Annotated[str, Opt(regex="^[a-z]+$", former="old.subject", group=DEFAULT)] = "a"
    colour: Annotated[Colour, Opt()] = "red"
    speed: Annotated[str, Opt(choices={"slow": "as a snail", "fast": "as a hare"})] = "slow"
    names: Annotated[tuple[str, ...], Opt()] = ("x",)
    colours: Annotated[tuple[Colour, ...], Opt()] = ("red", "green")
    paths: Annotated[tuple[str, ...], Opt(form="multi")] = ()
    roles: Annotated[Mapping[str, Colour], Opt()] = {}
    folder: Annotated[Path | None, Opt(help="Where.", sample_default="/there")] = None
    part: Part = Part()
    other: Optional | None = None
    given: int = 0


TABLE = Table(whole=(Whole,), optional=(Optional,))
WITH_HELP = {opt.name: opt for _, opts in TABLE.with_help for opt in opts}


@pytest.mark.parametrize(
    "expected",
    [
        cfg.FloatOpt(
            "wait", default=2.0, min=0.0, max=60.0, mutable=True,
            help="Seconds that something waits.",
        ),
        cfg.PortOpt("port", default=0),
        cfg.HostAddressOpt("listen", default="::1"),
        cfg.StrOpt(
            "topic", default="a", regex="^[a-z]+$",
            deprecated_name="subject", deprecated_group="old",
        ),
        cfg.StrOpt("colour", default="red", choices=["red", "green"]),
        cfg.StrOpt(
            "speed", default="slow", choices=[("slow", "as a snail"), ("fast", "as a hare")]
        ),
        cfg.ListOpt("names", default=["x"]),
        cfg.ListOpt(
            "colours", default=["red", "green"],
            item_type=cfg.types.String(choices=["red", "green"]),
        ),
        cfg.MultiStrOpt("paths", default=[]),
        cfg.Opt(
            "roles", default={}, type=cfg.types.Dict(cfg.types.String(choices=["red", "green"]))
        ),
        cfg.StrOpt("folder", help="Where.", sample_default="/there"),
        cfg.IntOpt("size", default=2, min=1, max=9, help="Of the part."),
        cfg.StrOpt("url", secret=True),
        cfg.BoolOpt("enabled", default=False),
    ],
    ids=lambda opt: opt.name,
)  # fmt: skip
def test_a_field_becomes_an_option(expected):
    found = WITH_HELP[expected.name]
    assert type(found) is type(expected)
    assert vars(found) == vars(expected)


def loaded(tmp_path, **groups) -> cfg.ConfigOpts:
    found = cfg.ConfigOpts()
    for group, opts in TABLE.options:
        found.register_opts(opts, group=group)
    found(["--config-file", str(write_config(tmp_path / "c", **groups))])
    return found


def test_a_struct_has_the_values_of_its_options_and_what_is_given(tmp_path):
    whole = {"wait": 3, "names": "a, b", "roles": "x:green", "folder": "/f", "size": 5}
    found = loaded(
        tmp_path, whole=whole, old={"subject": "b"}, optional={"enabled": True, "url": "u"}
    )
    assert TABLE.read(found, Whole, given=7, colour="green") == Whole(
        wait_s=3.0, names=("a", "b"), roles={"x": "green"}, folder=Path("/f"), topic="b",
        part=Part(5), other=Optional(enabled=True, url="u"), given=7, colour="green",
    )  # fmt: skip


def test_a_list_may_be_empty_and_has_no_item_but_the_permitted_ones(tmp_path):
    assert TABLE.read(loaded(tmp_path, whole={"colours": ""}), Whole).colours == ()
    with pytest.raises(cfg.ConfigFileValueError, match="blue"):
        TABLE.read(loaded(tmp_path, whole={"colours": "red,blue"}), Whole)


@pytest.mark.parametrize("optional", [{"enabled": True}, {"url": "u"}])
def test_a_part_that_is_off_or_lacks_an_option_is_none(tmp_path, optional):
    assert TABLE.read(loaded(tmp_path, optional=optional), Whole).other is None


def test_every_option_has_a_help_text_and_a_permitted_default():
    for _, opts in conf.list_opts():
        for opt in opts:
            assert opt.help, opt.name
            if opt.default is not None and not isinstance(opt.default, list | dict):
                assert opt.type(str(opt.default)) == opt.default, opt.name


def test_options_with_a_new_name_are_read_by_the_former_one(tmp_path):
    path = write_config(
        tmp_path / "c", cluster_lock={"max_head_start": 7.5}, DEFAULT={"control_exchange": "other"}
    )
    found = conf.load(["--config-file", str(path)])
    settings = conf.settings(found)
    assert (settings.placement.max_priority_boost_s, settings.rpc.exchange) == (7.5, "other")
    assert conf.unread(found) == []
