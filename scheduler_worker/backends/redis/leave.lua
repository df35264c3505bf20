-- Gives up a lease, an offer, a place in the queue or the wait for a change, whichever there is.
-- ARGV: owner
local owner = ARGV[5]
if meta.holder == owner then meta.holder = nil end
drop_waiter(owner)
redis.call('ZREM', WATCHERS, owner)
settle()
save()
return 1
