-- What every script begins with; docs/state.md says what the keys hold and why.
-- A script runs alone, so nothing here needs to fear another. Any script may run twice, because a
-- client repeats it when a reply was lost: each must answer and leave behind the same both times.
local META, RECORDS, CHANGED, EXPIRY = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local GONE, QUEUE, PATIENCE, WATCHERS, MEMO = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local FRESH_EPOCH, MAX_TOMBSTONES, OFFER_US = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local REAP_AT_ONCE = 100
local AT_ONCE = 2000 -- arguments of one command; Lua's stack takes some thousands
local NUDGE_MS = 60000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2] -- microseconds: below 2^53, so a number holds them

-- Numbers become text without an exponent.
local function text(number)
  return string.format('%.0f', number)
end

-- meta: read at once by load(), written at once by save(). A missing number is 0, a missing name nil.
local FIELDS = {
  'version', 'floor', 'token', 'deadline', 'offer_deadline', 'arrivals', 'watched', -- numbers
  'epoch', 'holder', 'offered', -- names
}
local NUMBERS = 7
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

-- Waiting: a nudge in a list of the waiter's own; it is worth nothing after a minute.
local function wake_list(owner)
  return string.sub(META, 1, -#'meta' - 1) .. 'wake:' .. owner
end

local function nudge(owner)
  redis.call('RPUSH', wake_list(owner), '1')
  redis.call('PEXPIRE', wake_list(owner), NUDGE_MS)
end

-- Those who wait for a change hear of it once, and then look for themselves. While nobody waits,
-- it costs a look at meta, which is there anyway.
local new_version
local function tell_watchers()
  if not new_version or meta.watched == 0 then return end
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', WATCHERS, text(now), '+inf')) do
    nudge(owner)
  end
  redis.call('DEL', WATCHERS)
  meta.watched = 0
end

local function save()
  tell_watchers()
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

-- Records ------------------------------------------------------------------------------------

-- One new version for all that this call changes. It is a time where it can be, so that a store
-- that lost its last second, or everything, never gives out the same version twice.
local function bump()
  if not new_version then
    new_version = math.max(meta.version + 1, now)
    meta.version = new_version
  end
  return new_version
end

-- What put() was told and Redis was not yet: one command for many records costs a fraction.
-- The first write is one that a full server refuses, so that nothing is half done there.
local sets, scores, expiries, lasting, unsaid = {}, {}, {}, {}, {}
local function say()
  if #sets == 0 then return end
  redis.call('HSET', RECORDS, unpack(sets))
  redis.call('ZADD', CHANGED, unpack(scores))
  if #expiries > 0 then redis.call('ZADD', EXPIRY, unpack(expiries)) end
  if #lasting > 0 then redis.call('ZREM', EXPIRY, unpack(lasting)) end
  sets, scores, expiries, lasting, unsaid = {}, {}, {}, {}, {}
end

local function put(key, value, expires_at)
  if unsaid[key] or #sets >= AT_ONCE then say() end
  local version = text(bump())
  unsaid[key] = true
  sets[#sets + 1], sets[#sets + 2] = key, value
  scores[#scores + 1], scores[#scores + 2] = version, key
  if expires_at == '' then
    lasting[#lasting + 1] = key
  else
    expiries[#expiries + 1], expiries[#expiries + 2] = expires_at, key
  end
end

local function delete(key)
  say()
  if redis.call('HEXISTS', RECORDS, key) == 0 then return end
  local version = text(bump())
  redis.call('ZADD', CHANGED, version, key)
  redis.call('ZADD', GONE, version, key)
  redis.call('HDEL', RECORDS, key)
  redis.call('ZREM', EXPIRY, key)
end

local function version_of(key)
  if unsaid[key] then return new_version end
  if redis.call('HEXISTS', RECORDS, key) == 0 then return 0 end
  return tonumber(redis.call('ZSCORE', CHANGED, key))
end

local function reap()
  local ended = redis.call('ZRANGEBYSCORE', EXPIRY, '-inf', text(now), 'LIMIT', 0, REAP_AT_ONCE)
  for _, key in ipairs(ended) do delete(key) end
end

-- Forgets the oldest tombstones. In CHANGED a key that was written since has a later version.
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

-- Applies transactions from ARGV[at] on: how many, then for each: how many guards, how many puts,
-- (key, version) ..., (key, 'delete' or 'put', value, time of expiry or '') ...
-- Answers "version before applied", the last with one character for each: 1 applied, 0 not; and
-- the version before once more, on its own.
-- When something expired now, before is the new version already, which nobody can have seen.
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
  say()
  trim()
  return text(meta.version) .. ' ' .. text(before) .. ' ' .. table.concat(applied), text(before)
end

-- What changed after a version: {{version, now, epoch, 1 if it is everything}, {key, version, ...},
-- {value or nil, ...}}, or the head alone when there is more than the limit.
local function changes_after(seen_epoch, seen_version, limit)
  local since = tonumber(seen_version)
  local reset = seen_epoch ~= meta.epoch or since < meta.floor or since > meta.version
  if reset then since = 0 end
  local head = {text(meta.version), text(now), meta.epoch, reset and 1 or 0}
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

-- Ends what has run out, and offers a free lock to the first waiter that still waits.
local function settle()
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

load()
