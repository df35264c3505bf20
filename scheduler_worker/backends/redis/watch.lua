-- Registers a waiter to be nudged when the scope changes.
-- ARGV: owner, patience (microseconds), seen epoch, seen version
-- Replies {1, 0} when it has changed already, or {0, microseconds after which to call again}.
local owner, patience = ARGV[5], tonumber(ARGV[6])
reap()
local answer
if ARGV[7] ~= meta.epoch or tonumber(ARGV[8]) ~= meta.version then
  answer = {1, 0}
else
  redis.call('ZREMRANGEBYSCORE', WATCHERS, '-inf', text(now)) -- waiters that gave up or died
  if patience > 0 then
    redis.call('ZADD', WATCHERS, text(now + patience), owner)
    meta.watched = 1
  end
  local next_expiry = redis.call('ZRANGE', EXPIRY, 0, 0, 'WITHSCORES')[2]
  local left = next_expiry and tonumber(next_expiry) + meta.held_back - now or patience
  answer = {0, text(math.min(left, patience))}
end
save()
return answer
