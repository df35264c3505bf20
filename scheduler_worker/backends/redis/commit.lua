-- Writes under the token and hands the lock on.
-- ARGV: owner, token, epoch, milliseconds for which a repetition is recognised, transactions
-- Answers "version before applied", or nil when the hold had ended.
local known = redis.call('GET', MEMO)
if known then return known end

local owner = ARGV[4]
local is_held = meta.holder == owner and meta.deadline > now
  and text(meta.token) == ARGV[5] and meta.epoch == ARGV[6]
if not is_held then return false end

local answer = apply(8)
redis.call('SET', MEMO, answer, 'PX', ARGV[7])
meta.holder = nil
settle()
save()
return answer
