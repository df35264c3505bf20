-- Tells what changed.
-- ARGV: seen epoch, seen version, limit of changes
reap()
local answer = changes_after(ARGV[4], ARGV[5], ARGV[6])
save()
return answer
