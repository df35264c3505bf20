-- Writes under the fencing token and hands the lock on.
-- ARGV: owner, token, epoch, milliseconds for which a repeated call is recognised, the version up to
-- which the caller knows all (or ''), 1 to keep the lease if that is all and no other worker waits,
-- transactions
-- Replies "version before applied lock", or nil when the lease had ended. The last number says where
-- the lock is: 1 with the caller still, 0 with another worker or offered to one, 2 with nobody.
local known = redis.call('GET', MEMO)
if known then return known end

local owner = ARGV[5]
local is_leased = meta.deadline > now and text(meta.token) == ARGV[6] and meta.epoch == ARGV[7]
if is_leased and meta.last == owner then
  -- The lock went to nobody, and nobody waits. Its last holder takes it up again if it knows all
  -- that has changed.
  reap()
  if text(meta.version) == ARGV[9] then meta.holder = owner end
end
if not (is_leased and meta.holder == owner) then
  save()
  return false
end

local written, before = apply(11)
local is_kept = ARGV[10] == '1' and ARGV[9] == before and redis.call('ZCARD', QUEUE) == 0
meta.last = nil
if not is_kept then
  meta.holder = nil
  settle()
  if not meta.offered then meta.last = owner end
end
local answer = written .. (is_kept and ' 1' or meta.last and ' 2' or ' 0')
redis.call('SET', MEMO, answer, 'PX', ARGV[8])
save()
return answer
