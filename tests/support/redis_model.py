"""A small model of Redis: the commands that the scripts use, and Lua to run them in this process.

It has no sockets, no threads and no clock of its own, so its owner controls time and the order of
events. ``tests/contract/test_redis_model.py`` compares it with a real server.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from lupa import lua51
from redis.exceptions import ResponseError

Reply = Any
"""None, an integer, bytes, or a list of replies, as a client gets them."""

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class SortedSet(dict[bytes, float]):
    """Member -> score, and the members in their order."""

    def __init__(self, scores: Mapping[bytes, float] = {}) -> None:
        super().__init__(scores)
        self.order = sorted((score, member) for member, score in scores.items())

    def put(self, member: bytes, score: float) -> bool:
        """Whether the member is new."""
        is_new = not self.discard(member)
        self[member] = score
        insort(self.order, (score, member))
        return is_new

    def discard(self, member: bytes) -> bool:
        """Whether the member was there."""
        score = self.pop(member, None)
        if score is None:
            return False
        del self.order[bisect_left(self.order, (score, member))]
        return True

    def between(self, low: bytes, high: bytes) -> list[tuple[float, bytes]]:
        """Those of these scores, of which one after ``(`` is left out."""
        least, without_least = _bound(low)
        most, without_most = _bound(high)
        begin = bisect_left(self.order, (least, _END) if without_least else (least,))
        end = bisect_left(self.order, (most,) if without_most else (most, _END))
        return self.order[begin:end]

    def copy(self) -> SortedSet:
        return SortedSet(self)


class _End:
    """Larger than every member."""

    def __lt__(self, _: object) -> bool:
        return False

    def __gt__(self, _: object) -> bool:
        return True


_END = _End()


def _bound(text: bytes) -> tuple[float, bool]:
    is_open = text.startswith(b"(")
    return _number(text[is_open:], "min or max is not a float"), is_open


def _number(text: bytes, complaint: str = "value is not a valid float") -> float:
    try:
        number = float(text)
    except ValueError:
        raise ResponseError(complaint) from None
    if math.isnan(number):
        raise ResponseError(complaint)
    return number


def _integer(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise ResponseError("value is not an integer or out of range") from None


def _score(score: float) -> bytes:
    return (b"-inf" if score < 0 else b"inf") if math.isinf(score) else b"%.17g" % score


class Keyspace:
    """The data of one server. ``now_us`` is the server's clock in microseconds."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.values: dict[bytes, Any] = {}
        """bytes, dict (a hash), :class:`SortedSet` or list."""
        self.expires_ms: dict[bytes, int] = {}

    def copy(self) -> Keyspace:
        """The same data, which goes its own way from now on."""
        copied = Keyspace(self.now_us)
        copied.values = {
            key: value if isinstance(value, bytes) else value.copy()
            for key, value in self.values.items()
        }
        copied.expires_ms = dict(self.expires_ms)
        return copied

    def execute(self, *words: Any) -> Reply:
        """The reply to a command, whose words may be str, bytes or numbers. Raises ResponseError.

        Raises NotImplementedError for a command that the model does not have.
        """
        name, *arguments = map(encoded, words)
        command = self._COMMANDS.get(name.upper())
        if command is None:
            raise NotImplementedError(f"the model of Redis does not have {name.decode()}")
        return command(self, *arguments)

    def find(self, key: str) -> Any:
        """The value of a key, for tests that inspect a server; None if there is none."""
        return self._at(key.encode(), object)

    # Keys

    def _at(self, key: bytes, kind: type) -> Any:
        ends_ms = self.expires_ms.get(key)
        if ends_ms is not None and ends_ms <= self.now_us() // 1000:
            self._delete(key)
        value = self.values.get(key)
        if value is not None and kind not in {type(value), object}:  # a sorted set is no hash
            raise ResponseError(WRONG_TYPE)
        return value

    def _made(self, key: bytes, kind: type) -> Any:
        value = self._at(key, kind)
        if value is None:
            value = self.values[key] = kind()
        return value

    def _delete(self, key: bytes) -> bool:
        self.expires_ms.pop(key, None)
        return self.values.pop(key, None) is not None

    def _tidy(self, key: bytes) -> None:
        """A container that became empty is gone."""
        if not self.values.get(key):
            self._delete(key)

    def _time(self) -> Reply:
        seconds, micro = divmod(self.now_us(), 1_000_000)
        return [b"%d" % seconds, b"%d" % micro]

    def _ping(self) -> Reply:
        return b"PONG"

    def _del(self, *keys: bytes) -> Reply:
        return sum(self._at(key, object) is not None and self._delete(key) for key in keys)

    def _exists(self, *keys: bytes) -> Reply:
        return sum(self._at(key, object) is not None for key in keys)

    def _pexpire(self, key: bytes, lasts_ms: bytes) -> Reply:
        if self._at(key, object) is None:
            return 0
        self.expires_ms[key] = self.now_us() // 1000 + _integer(lasts_ms)
        return 1

    # Strings

    def _get(self, key: bytes) -> Reply:
        return self._at(key, bytes)

    def _set(self, key: bytes, value: bytes, *options: bytes) -> Reply:
        self._delete(key)
        self.values[key] = value
        match options:
            case ():
                pass
            case (unit, lasts) if unit.upper() in {b"PX", b"EX"}:
                scale = 1 if unit.upper() == b"PX" else 1000
                self.expires_ms[key] = self.now_us() // 1000 + scale * _integer(lasts)
            case _:
                raise NotImplementedError(f"the model of Redis does not have SET ... {options}")
        return Status(b"OK")

    # Hashes

    def _hset(self, key: bytes, *pairs: bytes) -> Reply:
        if not pairs or len(pairs) % 2:
            raise ResponseError("wrong number of arguments for 'hset' command")
        value = self._made(key, dict)
        before = len(value)
        value.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(value) - before

    def _hget(self, key: bytes, field: bytes) -> Reply:
        return (self._at(key, dict) or {}).get(field)

    def _hmget(self, key: bytes, *fields: bytes) -> Reply:
        value = self._at(key, dict) or {}
        return [value.get(field) for field in fields]

    def _hexists(self, key: bytes, field: bytes) -> Reply:
        return int(field in (self._at(key, dict) or {}))

    def _hlen(self, key: bytes) -> Reply:
        return len(self._at(key, dict) or {})

    def _hgetall(self, key: bytes) -> Reply:
        return [each for pair in (self._at(key, dict) or {}).items() for each in pair]

    def _hdel(self, key: bytes, *fields: bytes) -> Reply:
        value = self._at(key, dict) or {}
        removed = sum(value.pop(field, None) is not None for field in fields)
        self._tidy(key)
        return removed

    def _hscan(self, key: bytes, cursor: bytes, *options: bytes) -> Reply:
        """All of it at once, which a server may do, too."""
        given = dict(zip((each.upper() for each in options[::2]), options[1::2], strict=True))
        pattern = given.get(b"MATCH", b"*").decode()
        return [
            b"0",
            [
                each
                for pair in (self._at(key, dict) or {}).items()
                if fnmatchcase(pair[0].decode(), pattern)
                for each in pair
            ],
        ]

    # Sorted sets

    def _zadd(self, key: bytes, *pairs: bytes) -> Reply:
        if not pairs or len(pairs) % 2:
            raise ResponseError("syntax error")
        scores = [_number(each) for each in pairs[::2]]
        value = self._made(key, SortedSet)
        return sum(
            value.put(member, score) for score, member in zip(scores, pairs[1::2], strict=True)
        )

    def _zrem(self, key: bytes, *members: bytes) -> Reply:
        value = self._at(key, SortedSet) or SortedSet()
        removed = sum(value.discard(member) for member in members)
        self._tidy(key)
        return removed

    def _zscore(self, key: bytes, member: bytes) -> Reply:
        return self._zmscore(key, member)[0]

    def _zmscore(self, key: bytes, *members: bytes) -> Reply:
        value = self._at(key, SortedSet) or {}
        return [_score(value[member]) if member in value else None for member in members]

    def _zcard(self, key: bytes) -> Reply:
        return len(self._at(key, SortedSet) or ())

    def _zcount(self, key: bytes, low: bytes, high: bytes) -> Reply:
        return len((self._at(key, SortedSet) or SortedSet()).between(low, high))

    def _zrange(self, key: bytes, first: bytes, last: bytes, *options: bytes) -> Reply:
        order = (self._at(key, SortedSet) or SortedSet()).order
        begin, end = _integer(first), _integer(last)
        begin = max(0, begin + len(order)) if begin < 0 else begin
        end = end + len(order) if end < 0 else end
        return _members(order[begin : end + 1], options)

    def _zrangebyscore(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> Reply:
        found = (self._at(key, SortedSet) or SortedSet()).between(low, high)
        names = [each.upper() for each in options]
        if b"LIMIT" in names:
            at = names.index(b"LIMIT")
            skipped, count = map(_integer, options[at + 1 : at + 3])
            found = found[skipped:] if count < 0 else found[skipped : skipped + count]
            options = options[:at] + options[at + 3 :]
        return _members(found, options)

    def _zremrangebyscore(self, key: bytes, low: bytes, high: bytes) -> Reply:
        value = self._at(key, SortedSet) or SortedSet()
        found = value.between(low, high)
        for _, member in found:
            value.discard(member)
        self._tidy(key)
        return len(found)

    def _zpopmin(self, key: bytes, count: bytes = b"1") -> Reply:
        value = self._at(key, SortedSet) or SortedSet()
        found = value.order[: max(0, _integer(count))]
        for _, member in found:
            value.discard(member)
        self._tidy(key)
        return _members(found, (b"WITHSCORES",))

    # Lists

    def _rpush(self, key: bytes, *elements: bytes) -> Reply:
        value = self._made(key, list)
        value.extend(elements)
        return len(value)

    def _lpop(self, key: bytes) -> Reply:
        value = self._at(key, list)
        if value is None:
            return None
        first = value.pop(0)
        self._tidy(key)
        return first

    def _lrange(self, key: bytes, first: bytes, last: bytes) -> Reply:
        value = self._at(key, list) or []
        begin, end = _integer(first), _integer(last)
        begin = max(0, begin + len(value)) if begin < 0 else begin
        end = end + len(value) if end < 0 else end
        return value[begin : end + 1]

    _COMMANDS: ClassVar[dict[bytes, Callable[..., Reply]]] = {
        b"DEL": _del,
        b"EXISTS": _exists,
        b"GET": _get,
        b"HDEL": _hdel,
        b"HEXISTS": _hexists,
        b"HGET": _hget,
        b"HGETALL": _hgetall,
        b"HLEN": _hlen,
        b"HMGET": _hmget,
        b"HSCAN": _hscan,
        b"HSET": _hset,
        b"LPOP": _lpop,
        b"LRANGE": _lrange,
        b"PEXPIRE": _pexpire,
        b"PING": _ping,
        b"RPUSH": _rpush,
        b"SET": _set,
        b"TIME": _time,
        b"ZADD": _zadd,
        b"ZCARD": _zcard,
        b"ZCOUNT": _zcount,
        b"ZMSCORE": _zmscore,
        b"ZPOPMIN": _zpopmin,
        b"ZRANGE": _zrange,
        b"ZRANGEBYSCORE": _zrangebyscore,
        b"ZREM": _zrem,
        b"ZREMRANGEBYSCORE": _zremrangebyscore,
        b"ZSCORE": _zscore,
    }


def _members(found: Iterable[tuple[float, bytes]], options: Sequence[bytes]) -> list[bytes]:
    match [each.upper() for each in options]:
        case []:
            return [member for _, member in found]
        case [b"WITHSCORES"]:
            return [each for score, member in found for each in (member, _score(score))]
    raise NotImplementedError(f"the model of Redis does not have the options {options}")


class Status(bytes):
    """A reply such as OK, which scripts see as a table."""


def encoded(word: Any) -> bytes:
    """An argument of a command as a client sends it."""
    if isinstance(word, bytes):
        return word
    return (word if isinstance(word, str) else repr(word)).encode()


# Lua ---------------------------------------------------------------------------------------------

_SANDBOX = b"""
local call = ...
local redis = {
  call = call,
  pcall = function(...)
    local went_well, answer = pcall(call, ...)
    return went_well and answer or {err = tostring(answer)}
  end,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
}
local known = {
  redis = redis, string = string, table = table, math = math, pairs = pairs, ipairs = ipairs,
  next = next, type = type, tonumber = tonumber, tostring = tostring, unpack = unpack,
  select = select, assert = assert, error = error, pcall = pcall, rawget = rawget,
  rawset = rawset, rawequal = rawequal, setmetatable = setmetatable, getmetatable = getmetatable,
}
local function refuse(_, name) error('a script made or read the global variable ' .. name) end
return function(text)
  local chunk = assert(loadstring(text, '=script'))
  local globals = setmetatable({}, {
    __index = function(_, name) return known[name] or refuse(_, name) end,
    __newindex = refuse,
  })
  setfenv(chunk, globals)
  return function(keys, arguments)
    rawset(globals, 'KEYS', keys)
    rawset(globals, 'ARGV', arguments)
    return chunk()
  end
end
"""


class Scripts:
    """Runs scripts on keyspaces, one at a time, in the dialect that Redis has."""

    Error = lua51.LuaError
    """A script that is wrong itself."""

    def __init__(self) -> None:
        self._lua = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=False)
        self._load = self._lua.execute(_SANDBOX, self._call)
        self._table = self._lua.table_from
        self._known: dict[str, Any] = {}
        self._keyspace: Keyspace | None = None

    def run(
        self, text: str, keyspace: Keyspace, keys: Sequence[Any], arguments: Sequence[Any]
    ) -> Reply:
        """The reply to ``EVAL``. Raises ResponseError where a command of the script is refused."""
        script = self._known.get(text)
        if script is None:
            script = self._known[text] = self._load(text.encode())
        self._keyspace = keyspace
        return self._reply(
            script(self._table(map(encoded, keys)), self._table(map(encoded, arguments)))
        )

    def _call(self, *words: Any) -> Any:
        assert self._keyspace is not None
        return self._value(
            self._keyspace.execute(
                *[b"%.17g" % word if isinstance(word, float) else word for word in words]
            )
        )

    def _value(self, reply: Reply) -> Any:
        """A reply, as a script sees it."""
        match reply:
            case None:
                return False
            case Status():
                return self._lua.table_from({b"ok": bytes(reply)})
            case list():
                return self._table([self._value(each) for each in reply])
        return reply

    def _reply(self, value: Any) -> Reply:
        """A script's reply as a client gets it."""
        match value:
            case None | False:
                return None
            case True:
                return 1
            case int() | float():
                return int(value)
            case bytes():
                return value
        if (complaint := value[b"err"]) is not None:
            raise ResponseError(complaint.decode())
        if (status := value[b"ok"]) is not None:
            return status
        replies: list[Reply] = []
        while (each := value[len(replies) + 1]) is not None:
            replies.append(self._reply(each))
        return replies
