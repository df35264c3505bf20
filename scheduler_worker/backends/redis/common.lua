-- The common part of all scripts; docs/state.md explains the keys.
-- Redis runs one script at a time. Any script may run twice, because a client retries it when a
-- reply was lost: so each is idempotent, in its reply and in its effect.
local META, RECORDS, CHANGED, EXPIRY = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local GONE, QUEUE, PATIENCE, WATCHERS, MEMO = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local FRESH_EPOCH, MAX_TOMBSTONES, OFFER_US = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local VOUCHED = tonumber(ARGV[4]) -- upper bound of the time, less known jumps; or nil
local REAP_AT_ONCE = 100 -- expired records that one call deletes
local AT_ONCE = 2000 -- arguments of one command; Lua's stack holds some thousands
local NUDGE_MS = 60000
local JUMP_US = 5000000 -- a smaller step of the clock is not noticed
local PACE_US = 1000000 -- the shortest time between two updates of `paced`

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2] -- microseconds: below 2^53, so a number holds them

-- A number as text without an exponent.
local function text(number)
  return string.format('%.0f', number)
end

-- meta: load() reads all fields, save() writes the changed ones. A missing number is 0, a missing
-- name nil.
local FIELDS = {
  'version', 'floor', 'token', 'deadline', 'hold', 'offer_deadline', 'arrivals', 'watched',
  'marked', 'paced', 'jumped', 'held_back', 'held_until', 'held_for', -- numbers, up to here
  'epoch', 'lost', 'holder', 'offered', 'last', -- names; `last` left the lock free for everybody
}
local NUMBERS = 14
local meta, stored = {}, {}

local function load()
  for i, value in ipairs(redis.call('HMGET', META, unpack(FIELDS))) do
    local field = FIELDS[i]
    stored[field] = value or ''
    if i <= NUMBERS then
      meta[field] = tonumber(value or 0)
    elseif value and value ~= '' then
      meta[field] = value
    end
  end
  meta.epoch = meta.epoch or FRESH_EPOCH
end

-- A nudge is an element in the waiter's own list, on which it blocks; it expires after a minute.
local function wake_list(owner)
  return string.sub(META, 1, -#'meta' - 1) .. 'wake:' .. owner
end

local function nudge(owner)
  redis.call('RPUSH', wake_list(owner), '1')
  redis.call('PEXPIRE', wake_list(owner), NUDGE_MS)
end

-- Nudges all waiters for a change, once; they read the changes themselves. While there are none, this
-- costs a look at meta, which is loaded anyway.
local new_version
local function nudge_watchers()
  if not new_version or meta.watched == 0 then return end
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', WATCHERS, text(now), '+inf')) do
    nudge(owner)
  end
  redis.call('DEL', WATCHERS)
  meta.watched = 0
end

local function save()
  nudge_watchers()
  local update = {}
  for i, field in ipairs(FIELDS) do
    local value = i <= NUMBERS and text(meta[field]) or meta[field] or ''
    if value ~= stored[field] then
      update[#update + 1] = field
      update[#update + 1] = value
    end
  end
  if #update > 0 then redis.call('HSET', META, unpack(update)) end
end

-- Computes the time up to which records expire (`ending`). The server's clock may jump forward, and
-- must not expire records early by that. A caller passes an upper bound of the time (VOUCHED), from
-- its own monotonic clock. If the server's clock is past that bound, and past the time that other
-- callers confirmed (`paced`), it has jumped. Expiry is then delayed by the jump (`held_back`), until
-- the last record of that time has expired (`held_until`) or the clock goes back. A caller without
-- a bound, which has just started, expires only what others would.
local ending
local function check_clock()
  local shown = now -- the time without a jump since the last call
  if VOUCHED then
    local jump = math.min(now - meta.jumped - VOUCHED, now - meta.paced)
    if jump > JUMP_US and meta.paced > 0 then shown = now - jump end
  elseif meta.paced > 0 then
    shown = math.min(now, meta.paced)
  end
  if shown >= meta.held_until or meta.held_until - shown > meta.held_for then
    meta.held_back, meta.held_until, meta.held_for = 0, 0, 0
  end
  ending = shown - meta.held_back
  if not VOUCHED then return end
  if shown < now then
    local last = redis.call('ZRANGE', EXPIRY, -1, -1, 'WITHSCORES')[2]
    meta.jumped = meta.jumped + now - shown
    meta.held_back = now - ending
    meta.held_for = math.max(0, tonumber(last or 0) - ending)
    meta.held_until = now + meta.held_for
    save()
  end
  if math.abs(now - meta.paced) > PACE_US then
    -- pcall, so that on a full server, which refuses this write, calls that only read go on.
    redis.pcall('HSET', META, 'paced', text(now))
    meta.paced, stored.paced = now, text(now)
  end
end

-- Records ------------------------------------------------------------------------------------

-- One new version for all changes of this call. It is the time if that is larger than the last one,
-- so that a store that lost its last second, or everything, never gives out a version twice.
local function bump()
  if not new_version then
    new_version = math.max(meta.version + 1, now)
    meta.version = new_version
  end
  return new_version
end

-- put() buffers, flush() writes: one command for many records costs a fraction. The first write is
-- one that a full server refuses, so that a refused call leaves nothing half done.
local sets, scores, expiries, lasting, unwritten = {}, {}, {}, {}, {}
local function flush()
  if #sets == 0 then return end
  redis.call('HSET', RECORDS, unpack(sets))
  redis.call('ZADD', CHANGED, unpack(scores))
  if meta.marked == 0 then
    -- Markers that are never deleted: a key without its marker was lost.
    redis.call('HSET', RECORDS, '', '{}')
    redis.call('ZADD', CHANGED, 0, '')
    meta.marked = 1
  end
  if #expiries > 0 then redis.call('ZADD', EXPIRY, unpack(expiries)) end
  if #lasting > 0 then redis.call('ZREM', EXPIRY, unpack(lasting)) end
  sets, scores, expiries, lasting, unwritten = {}, {}, {}, {}, {}
end

local function put(key, value, expires_at)
  if unwritten[key] or #sets >= AT_ONCE then flush() end
  local version = text(bump())
  unwritten[key] = true
  sets[#sets + 1], sets[#sets + 2] = key, value
  scores[#scores + 1], scores[#scores + 2] = version, key
  if expires_at == '' then
    lasting[#lasting + 1] = key
  else
    expiries[#expiries + 1], expiries[#expiries + 2] = expires_at, key
  end
end

local function delete(key)
  flush()
  if redis.call('HEXISTS', RECORDS, key) == 0 then return end
  local version = text(bump())
  redis.call('ZADD', CHANGED, version, key)
  redis.call('ZADD', GONE, version, key)
  redis.call('HDEL', RECORDS, key)
  redis.call('ZREM', EXPIRY, key)
end

local function version_of(key)
  if unwritten[key] then return new_version end
  if redis.call('HEXISTS', RECORDS, key) == 0 then return 0 end
  return tonumber(redis.call('ZSCORE', CHANGED, key))
end

local function reap()
  local ended = redis.call('ZRANGEBYSCORE', EXPIRY, '-inf', text(ending), 'LIMIT', 0, REAP_AT_ONCE)
  for _, key in ipairs(ended) do delete(key) end
end

-- Drops the oldest tombstones. A key that was written since then has a later version in CHANGED.
local function trim()
  local excess = redis.call('ZCARD', GONE) - MAX_TOMBSTONES
  if excess <= 0 then return end
  local oldest = redis.call('ZPOPMIN', GONE, math.min(excess, 2 * REAP_AT_ONCE))
  for i = 1, #oldest, 2 do
    local version = tonumber(oldest[i + 1])
    if tonumber(redis.call('ZSCORE', CHANGED, oldest[i]) or 0) == version then
      redis.call('ZREM', CHANGED, oldest[i])
      meta.floor = math.max(meta.floor, version)
    end
  end
end

-- Applies the transactions from ARGV[at] on: their number, then for each: the numbers of its guards
-- and puts, (key, version) ..., (key, 'delete' or 'put', value, time of expiry or '') ...
-- Returns "version before applied", with a digit for each transaction (1 applied, 0 not); and the
-- version before again, on its own.
-- If this call also expired records, before is the new version already, which no caller can have
-- seen, so that the committer reads these changes.
local function apply(at)
  reap()
  local before = meta.version
  local applied = {}
  local count = tonumber(ARGV[at])
  at = at + 1
  for number = 1, count do
    local guards, puts = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    local first_put = at + 2 + 2 * guards
    local holds = true
    for i = at + 2, first_put - 2, 2 do
      holds = holds and version_of(ARGV[i]) == tonumber(ARGV[i + 1])
    end
    at = first_put + 4 * puts
    if holds then
      for i = first_put, at - 4, 4 do
        if ARGV[i + 1] == 'delete' then
          delete(ARGV[i])
        else
          put(ARGV[i], ARGV[i + 2], ARGV[i + 3])
        end
      end
    end
    applied[number] = holds and '1' or '0'
  end
  flush()
  trim()
  return text(meta.version) .. ' ' .. text(before) .. ' ' .. table.concat(applied), text(before)
end

-- The changes after a version: {{version, now, epoch, 1 if it is everything, the keys whose loss
-- began this epoch, the sum of the clock's jumps}, {key, version, ...}, {value or nil, ...}}, or the
-- head alone when there are more than the limit.
local function changes_after(seen_epoch, seen_version, limit)
  local since = tonumber(seen_version)
  local reset = seen_epoch ~= meta.epoch or since < meta.floor or since > meta.version
  if reset then since = 0 end
  local head = {
    text(meta.version), text(now), meta.epoch, reset and 1 or 0, meta.lost or '', text(meta.jumped),
  }
  if since == meta.version then return {head, {}, {}} end
  local after = '(' .. text(since)
  if redis.call('ZCOUNT', CHANGED, after, '+inf') > tonumber(limit) then return {head} end
  local keys = redis.call('ZRANGEBYSCORE', CHANGED, after, '+inf', 'WITHSCORES')
  local values = {}
  for first = 1, #keys, 2000 do
    local names = {}
    for i = first, math.min(first + 1998, #keys), 2 do names[#names + 1] = keys[i] end
    for _, value in ipairs(redis.call('HMGET', RECORDS, unpack(names))) do
      values[#values + 1] = value
    end
  end
  return {head, keys, values}
end

-- The lock --------------------------------------------------------------------------------------

local function drop_waiter(owner)
  redis.call('ZREM', QUEUE, owner)
  redis.call('HDEL', PATIENCE, owner)
  redis.call('DEL', wake_list(owner))
  if meta.offered == owner then
    meta.offered, meta.offer_deadline = nil, 0
  end
end

-- Ends an expired lease or offer, and offers a free lock to the first waiter that still waits.
local function settle()
  -- A deadline further away than a whole lease was set before the clock went back.
  if meta.hold > 0 then meta.deadline = math.min(meta.deadline, now + meta.hold) end
  meta.offer_deadline = math.min(meta.offer_deadline, now + OFFER_US)
  if meta.holder and meta.deadline <= now then meta.holder = nil end
  if meta.holder then return end
  if meta.offered then
    if meta.offer_deadline > now then return end
    drop_waiter(meta.offered)
  end
  local head = redis.call('ZRANGE', QUEUE, 0, 0)[1]
  while head do
    if tonumber(redis.call('HGET', PATIENCE, head) or 0) > now then
      meta.offered, meta.offer_deadline = head, now + OFFER_US
      nudge(head)
      return
    end
    drop_waiter(head)
    head = redis.call('ZRANGE', QUEUE, 0, 0)[1]
  end
end

-- Keys that were lost --------------------------------------------------------------------------

-- The scope's keys that were deleted or evicted while others are still there.
local function lost_keys()
  local has_meta = stored.epoch ~= ''
  if has_meta and meta.marked == 0 then return {} end -- nothing was ever written
  local has_records = redis.call('HEXISTS', RECORDS, '') == 1
    or not has_meta and #redis.call('HSCAN', RECORDS, 0)[2] > 0
  local has_changed = redis.call('ZSCORE', CHANGED, '') ~= false
    or not has_meta and redis.call('ZCARD', CHANGED) > 0
  if not (has_meta or has_records or has_changed) then return {} end -- the scope is new
  local lost = {}
  if not has_meta then lost[#lost + 1] = 'meta' end
  if not has_records then lost[#lost + 1] = 'records' end
  if not has_changed then lost[#lost + 1] = 'changed' end
  return lost, has_records, has_changed
end

-- Rebuilds a lost index from the keys of all records.
local function rebuild_index(version)
  redis.call('ZADD', CHANGED, 0, '')
  redis.call('DEL', GONE)
  local cursor = '0'
  repeat
    local page, found = redis.call('HSCAN', RECORDS, cursor, 'COUNT', AT_ONCE / 2), {}
    for i = 1, #page[2], 2 do
      if page[2][i] ~= '' then
        found[#found + 1], found[#found + 2] = version, page[2][i]
      end
    end
    if #found > 0 then redis.call('ZADD', CHANGED, unpack(found)) end
    cursor = page[1]
  until cursor == '0'
end

-- Begins a new epoch with what is left; every caller discards what it knew.
local function begin_epoch(lost, has_records, has_changed)
  local last = redis.call('ZRANGE', CHANGED, -1, -1, 'WITHSCORES')[2]
  meta.version = math.max(meta.version, tonumber(last or 0))
  meta.epoch, meta.lost, meta.floor = FRESH_EPOCH, table.concat(lost, ', '), 0
  meta.holder, meta.offered, meta.last, meta.deadline, meta.offer_deadline = nil, nil, nil, 0, 0
  meta.marked = has_records and 1 or 0
  local version = text(bump())
  if not has_records then
    redis.call('DEL', RECORDS, CHANGED, GONE, EXPIRY)
  elseif not has_changed then
    rebuild_index(version)
  end
  save()
end

load()
check_clock()
local lost, has_records, has_changed = lost_keys()
if #lost > 0 then begin_epoch(lost, has_records, has_changed) end
