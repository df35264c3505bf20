"""Parses the command line and the configuration files into a ``ConfigOpts`` of its own."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from oslo_config import cfg, iniparser
from oslo_utils import netutils

from scheduler_worker import __version__
from scheduler_worker.errors import ConfigError

_VARIABLE = re.compile(r"OS_([A-Z0-9_]+?)__([A-Z0-9_]+)")
_NOVAS_DEFAULTS = {"my_ip": netutils.get_my_ipv4}
"""Options of Nova's that files use, such as ``$my_ip``, without setting them."""


class Configuration(cfg.ConfigOpts):  # type: ignore[misc]
    """A ``ConfigOpts`` that keeps its arguments, so that :meth:`read_anew` can repeat the parse."""

    def __init__(
        self,
        register: Callable[[cfg.ConfigOpts], None],
        args: Sequence[str],
        cli_opts: Sequence[Any],
        prog: str,
        default_files: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._arguments = (register, tuple(args), tuple(cli_opts), prog)
        register(self)
        self.register_cli_opts(cli_opts)
        self(
            list(args),
            project="scheduler_worker",
            prog=prog,
            version=__version__,
            default_config_files=None if default_files is None else list(default_files),
        )

    @property
    def cli_opts(self) -> list[Any]:
        """The options of the command line alone."""
        return list(self._arguments[2])

    @property
    def files(self) -> list[str]:
        """The files that were read, in their order."""
        folders = [Path(config_dir) for config_dir in self.config_dirs or self.default_config_dirs]
        paths = [str(path) for folder in folders for path in sorted(folder.glob("*.conf"))]
        return [*self.config_file, *paths]

    def sections(self) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
        """Each file and variable of the environment, with what it sets by the name of the section.

        What comes later takes precedence.
        """
        for path in self.files:
            sections: dict[str, dict[str, Any]] = {}
            with contextlib.suppress(OSError, ValueError, iniparser.ParseError):
                # It was readable when the configuration was loaded; if not now, that is reported
                # elsewhere.
                cfg.ConfigParser(path, sections).parse()
            yield path, sections
        for variable, value in sorted(os.environ.items()):
            if (match := _VARIABLE.fullmatch(variable)) is not None:
                group, option = match.groups()
                group = group if group == "DEFAULT" else group.lower()
                yield variable, {group: {option.lower(): [value]}}

    def substituted(self, name: str) -> str:
        """What ``$name`` stands for where no option of that name is registered.

        A file that is shared with Nova may name any option of Nova's so.

        Raises ValueError: nothing sets it. It is not shown: it may be a part of a password.
        """
        group, _, option = name.rpartition(".")
        values = [
            options[option][-1]
            for _, sections in self.sections()
            for section, options in sections.items()
            if section.lower() == (group or "default").lower() and option in options
        ]
        if values:
            return str(self._substitute(values[-1]))
        if name in _NOVAS_DEFAULTS:
            return str(_NOVAS_DEFAULTS[name]())
        raise ValueError(
            "a $ in it stands before a name that nothing sets; set that option, or write $$ for "
            "each $ of a password"
        )

    class StrSubWrapper(cfg.ConfigOpts.StrSubWrapper):  # type: ignore[misc]
        """What oslo.config looks up ``$name`` in."""

        def __getitem__(self, key: str) -> Any:
            with contextlib.suppress(cfg.NoSuchOptError, cfg.NoSuchGroupError):
                return super().__getitem__(key)
            return self.conf.substituted(key)

    def sets(self, group: str) -> bool:
        """Whether a file or the environment sets an option of the group."""
        places = (self.get_location(name, group) for name in self[group])
        return any(place is not None and place.location.is_user_controlled for place in places)

    def of_command_line(self, name: str, default: Any) -> Any:
        """An option of the command line alone; ``default`` where the command has no such option."""
        return self[name] if name in self else default  # noqa: SIM401 - its get() raises, too

    def register_mutate_hook(self, hook: object) -> None:
        """Ignore it: that of oslo.log ends all logging where its file cannot be loaded."""

    def read_anew(self) -> Self:
        """Parse the same command line and files again, into a new object; this one is unchanged.

        Raises ConfigError: a file is missing, unreadable or malformed.
        """
        complaints = io.StringIO()
        try:
            with contextlib.redirect_stderr(complaints):  # argparse writes there before it exits
                return type(self)(*self._arguments, self.default_config_files)
        except SystemExit:
            raise ConfigError(complaints.getvalue().strip()) from None
        except (cfg.Error, ValueError, OSError) as error:
            raise ConfigError(str(error)) from None

    @contextlib.contextmanager
    def adopted(self, tried: Self) -> Iterator[None]:
        """Take over the mutable options of one that was read again, unless the body fails."""
        before = self._mutable_ns or self._namespace
        self._take(tried._namespace)
        try:
            yield
        except BaseException:
            self._take(before)
            raise

    def _take(self, parsed: Any) -> None:
        self._parsed_files = parsed
        self.mutate_config_files()

    def _reload_config_files(self) -> Any:
        # oslo.config would read the files a second time: what they say by then was not checked.
        return self._parsed_files
