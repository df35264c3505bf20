-- Writes under the token and hands the lock on.
-- ARGV: owner, token, epoch, milliseconds for which a repetition is recognised, the version at
-- which the hold is kept if nobody waits (or ''), transactions
-- Answers "version before applied kept", or nil when the hold had ended.
local known = redis.call('GET', MEMO)
if known then return known end

local owner = ARGV[4]
local is_held = meta.holder == owner and meta.deadline > now
  and text(meta.token) == ARGV[5] and meta.epoch == ARGV[6]
if not is_held then return false end

local written, before = apply(9)
local is_kept = ARGV[8] == before and redis.call('ZCARD', QUEUE) == 0
local answer = written .. (is_kept and ' 1' or ' 0')
redis.call('SET', MEMO, answer, 'PX', ARGV[7])
if not is_kept then
  meta.holder = nil
  settle()
end
save()
return answer
