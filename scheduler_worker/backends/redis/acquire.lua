-- Grants the lock, or enters or keeps the caller's place in the queue.
-- ARGV: owner, lease, patience (microseconds), seen epoch, seen version, limit of changes,
-- priority boost (microseconds): a waiter ranks as if it had arrived that much earlier
-- Replies {1, token, changes} or {0, microseconds after which to call again}.
local owner, lease, patience = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])

local function grant()
  drop_waiter(owner)
  meta.holder, meta.last, meta.hold, meta.deadline = owner, nil, lease, now + lease
  meta.token = math.max(meta.token + 1, now)
end

local function wait()
  if redis.call('ZSCORE', QUEUE, owner) == false then
    meta.arrivals = math.max(meta.arrivals + 1, now)
    redis.call('ZADD', QUEUE, text(meta.arrivals - tonumber(ARGV[11] or 0)), owner)
  end
  redis.call('HSET', PATIENCE, owner, text(now + patience))
  -- When a dead waiter lets its offer lapse, nobody is nudged: so all call again after that time.
  local ends = meta.holder and meta.deadline or meta.offer_deadline
  return {0, text(math.min(ends - now, OFFER_US))}
end

reap()
settle()
if not meta.holder and (meta.offered == owner or not meta.offered) then grant() end
local answer
if meta.holder == owner then
  answer = {1, text(meta.token), changes_after(ARGV[8], ARGV[9], ARGV[10])}
else
  answer = wait()
end
save()
return answer
