-- Writes under the fencing token and hands the lock on.
-- ARGV: owner, token, epoch, milliseconds for which a repeated call is recognised, the version at
-- which the lease is kept if no other worker waits (or ''), transactions
-- Replies "version before applied kept", or nil when the lease had ended.
local known = redis.call('GET', MEMO)
if known then return known end

local owner = ARGV[5]
local is_held = meta.holder == owner and meta.deadline > now
  and text(meta.token) == ARGV[6] and meta.epoch == ARGV[7]
if not is_held then return false end

local written, before = apply(10)
local is_kept = ARGV[9] == before and redis.call('ZCARD', QUEUE) == 0
local answer = written .. (is_kept and ' 1' or ' 0')
redis.call('SET', MEMO, answer, 'PX', ARGV[8])
if not is_kept then
  meta.holder = nil
  settle()
end
save()
return answer
