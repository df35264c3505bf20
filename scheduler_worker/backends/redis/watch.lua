-- Has a waiter told when the scope changes.
-- ARGV: owner, patience (microseconds), seen epoch, seen version
-- Answers {1, 0} when there is something to see already, or {0, microseconds until to look again}.
local owner, patience = ARGV[4], tonumber(ARGV[5])
reap()
local answer
if ARGV[6] ~= meta.epoch or tonumber(ARGV[7]) ~= meta.version then
  answer = {1, 0}
else
  redis.call('ZREMRANGEBYSCORE', WATCHERS, '-inf', text(now)) -- who waits no more, or is dead
  if patience > 0 then
    redis.call('ZADD', WATCHERS, text(now + patience), owner)
    meta.watched = 1
  end
  local next_expiry = redis.call('ZRANGE', EXPIRY, 0, 0, 'WITHSCORES')[2]
  local left = next_expiry and tonumber(next_expiry) - now or patience
  answer = {0, text(math.min(left, patience))}
end
save()
return answer
