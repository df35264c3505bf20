-- Grants the lock, or keeps a place in the queue.
-- ARGV: owner, hold, patience (microseconds), seen epoch, seen version, limit of changes,
-- head start (microseconds): a waiter is served as if it had come so much earlier
-- Answers {1, token, changes} or {0, microseconds until something may have changed}.
local owner, hold, patience = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

local function grant()
  drop_waiter(owner)
  meta.holder, meta.deadline = owner, now + hold
  meta.token = math.max(meta.token + 1, now)
end

local function wait()
  if redis.call('ZSCORE', QUEUE, owner) == false then
    meta.arrivals = math.max(meta.arrivals + 1, now)
    redis.call('ZADD', QUEUE, text(meta.arrivals - tonumber(ARGV[10] or 0)), owner)
  end
  redis.call('HSET', PATIENCE, owner, text(now + patience))
  -- An offer that a dead waiter lets pass is told to nobody, so all look again after that time.
  local ends = meta.holder and meta.deadline or meta.offer_deadline
  return {0, text(math.min(ends - now, OFFER_US))}
end

reap()
settle()
if not meta.holder and (meta.offered == owner or not meta.offered) then grant() end
local answer
if meta.holder == owner then
  answer = {1, text(meta.token), changes_after(ARGV[7], ARGV[8], ARGV[9])}
else
  answer = wait()
end
save()
return answer
