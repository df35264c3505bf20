"""A small model of Redis: the commands of the scripts as they use them, and Lua to run them.

It has no sockets, no threads and no clock of its own, so its owner controls time and the order of
events. ``tests/contract/test_redis_model.py`` compares it with a real server.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from operator import itemgetter
from typing import Any

from lupa import lua51

Reply = Any
"""None, an integer, bytes, or a list of replies, as a client gets them."""


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
        after = bisect_right if low.startswith(b"(") else bisect_left
        until = bisect_left if high.startswith(b"(") else bisect_right
        begin = after(self.order, float(low.lstrip(b"(")), key=_BY_SCORE)
        end = until(self.order, float(high.lstrip(b"(")), key=_BY_SCORE)
        return self.order[begin:end]


_BY_SCORE = itemgetter(0)


class Keyspace:
    """The data of one server. ``now_us`` is the server's clock in microseconds."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.values: dict[bytes, Any] = {}
        """bytes, dict (a hash), :class:`SortedSet` or list."""
        self.expires_ms: dict[bytes, int] = {}

    def copy(self) -> "Keyspace":
        """The same data, which goes its own way from now on."""
        copied = Keyspace(self.now_us)
        copied.values = deepcopy(self.values)
        copied.expires_ms = dict(self.expires_ms)
        return copied

    def execute(self, *words: Any) -> Reply:
        """The reply to a command, whose words may be str, bytes or numbers."""
        name, *arguments = map(encoded, words)
        return getattr(self, f"_{name.decode().lower()}")(*arguments)

    def find(self, key: str) -> Any:
        """The value of a key, for tests that inspect a server; None if there is none."""
        return self._at(key.encode())

    # Keys

    def _at(self, key: bytes) -> Any:
        ends_ms = self.expires_ms.get(key)
        if ends_ms is not None and ends_ms <= self.now_us() // 1000:
            self._delete(key)
        return self.values.get(key)

    def _made(self, key: bytes, kind: type) -> Any:
        value = self._at(key)
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
        return sum(self._at(key) is not None and self._delete(key) for key in keys)

    def _pexpire(self, key: bytes, lasts_ms: bytes) -> Reply:
        if self._at(key) is None:
            return 0
        self.expires_ms[key] = self.now_us() // 1000 + int(lasts_ms)
        return 1

    # Strings

    def _get(self, key: bytes) -> Reply:
        return self._at(key)

    def _set(self, key: bytes, value: bytes, _px: bytes, lasts_ms: bytes) -> Reply:
        self.values[key] = value
        return self._pexpire(key, lasts_ms)

    # Hashes

    def _hset(self, key: bytes, *pairs: bytes) -> Reply:
        value = self._made(key, dict)
        before = len(value)
        value.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(value) - before

    def _hget(self, key: bytes, field: bytes) -> Reply:
        return (self._at(key) or {}).get(field)

    def _hmget(self, key: bytes, *fields: bytes) -> Reply:
        value = self._at(key) or {}
        return [value.get(field) for field in fields]

    def _hexists(self, key: bytes, field: bytes) -> Reply:
        return int(field in (self._at(key) or {}))

    def _hdel(self, key: bytes, *fields: bytes) -> Reply:
        value = self._at(key) or {}
        removed = sum(value.pop(field, None) is not None for field in fields)
        self._tidy(key)
        return removed

    def _hscan(self, key: bytes, *_: bytes) -> Reply:
        """All of it at once, which a server may do, too."""
        return [b"0", [each for pair in (self._at(key) or {}).items() for each in pair]]

    # Sorted sets

    def _zadd(self, key: bytes, *pairs: bytes) -> Reply:
        value = self._made(key, SortedSet)
        scored = zip(map(float, pairs[::2]), pairs[1::2], strict=True)
        return sum(value.put(member, score) for score, member in scored)

    def _zrem(self, key: bytes, *members: bytes) -> Reply:
        value = self._at(key) or SortedSet()
        removed = sum(value.discard(member) for member in members)
        self._tidy(key)
        return removed

    def _zscore(self, key: bytes, member: bytes) -> Reply:
        return self._zmscore(key, member)[0]

    def _zmscore(self, key: bytes, *members: bytes) -> Reply:
        value = self._at(key) or {}
        return [b"%.17g" % value[member] if member in value else None for member in members]

    def _zcard(self, key: bytes) -> Reply:
        return len(self._at(key) or ())

    def _zcount(self, key: bytes, low: bytes, high: bytes) -> Reply:
        return len((self._at(key) or SortedSet()).between(low, high))

    def _zrange(self, key: bytes, first: bytes, last: bytes, *options: bytes) -> Reply:
        order = (self._at(key) or SortedSet()).order
        begin, end = int(first), int(last)
        begin = max(0, begin + len(order)) if begin < 0 else begin
        end = end + len(order) if end < 0 else end
        return _members(order[begin : end + 1], options)

    def _zrangebyscore(self, key: bytes, low: bytes, high: bytes, *options: bytes) -> Reply:
        found = (self._at(key) or SortedSet()).between(low, high)
        if b"LIMIT" in options:
            _, _, count = options
            return _members(found[: int(count)], ())
        return _members(found, options)

    def _zremrangebyscore(self, key: bytes, low: bytes, high: bytes) -> Reply:
        value = self._at(key) or SortedSet()
        found = value.between(low, high)
        for _, member in found:
            value.discard(member)
        self._tidy(key)
        return len(found)

    def _zpopmin(self, key: bytes, count: bytes = b"1") -> Reply:
        value = self._at(key) or SortedSet()
        found = value.order[: max(0, int(count))]
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
        value = self._at(key)
        if value is None:
            return None
        first = value.pop(0)
        self._tidy(key)
        return first


def _members(found: Iterable[tuple[float, bytes]], options: Sequence[bytes]) -> list[bytes]:
    if b"WITHSCORES" in options:
        return [each for score, member in found for each in (member, b"%.17g" % score)]
    return [member for _, member in found]


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
  pcall = call,
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

    def __init__(self) -> None:
        self._lua = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=False)
        self._load = self._lua.execute(_SANDBOX, self._call)
        self._table = self._lua.table_from
        self._known: dict[str, Any] = {}
        self._keyspace: Keyspace | None = None

    def run(
        self, text: str, keyspace: Keyspace, keys: Sequence[Any], arguments: Sequence[Any]
    ) -> Reply:
        """The reply to ``EVAL``."""
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
        if reply is None:
            return False
        if isinstance(reply, list):
            return self._table([self._value(each) for each in reply])
        return reply

    def _reply(self, value: Any) -> Reply:
        """A script's reply as a client gets it."""
        match value:
            case None | False:
                return None
            case int() | float():
                return int(value)
            case bytes():
                return value
        replies: list[Reply] = []
        while (each := value[len(replies) + 1]) is not None:
            replies.append(self._reply(each))
        return replies
