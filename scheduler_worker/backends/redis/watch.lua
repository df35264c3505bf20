-- Has a waiter told when the scope changes.
-- ARGV: owner, patience (microseconds), seen epoch, seen version
-- Answers {1} when there is something to see already, or {0, microseconds until a record expires}.
local owner, patience = ARGV[4], tonumber(ARGV[5])
reap()
local answer
if ARGV[6] ~= meta.epoch or tonumber(ARGV[7]) ~= meta.version then
  answer = {1}
else
  redis.call('ZADD', WATCHERS, text(now + patience), owner)
  meta.watched = 1
  local next_expiry = redis.call('ZRANGE', EXPIRY, 0, 0, 'WITHSCORES')[2]
  local left = next_expiry and tonumber(next_expiry) - now or patience
  answer = {0, text(math.min(left, patience))}
end
save()
return answer
