-- Gives up a hold, an offer or a place in the queue, whichever there is.
-- ARGV: owner
local owner = ARGV[4]
if meta.holder == owner then meta.holder = nil end
drop_waiter(owner)
settle()
save()
return 1
