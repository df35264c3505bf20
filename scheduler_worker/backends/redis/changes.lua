-- Returns the changes since a version.
-- ARGV: seen epoch, seen version, limit of changes
reap()
local answer = changes_after(ARGV[5], ARGV[6], ARGV[7])
save()
return answer
