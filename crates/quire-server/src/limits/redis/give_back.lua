-- Puts one create and its bytes back into the service's buckets, never above the burst. Appended to bucket.lua.
-- KEYS: the service's pair. ARGV: bytes; rate and burst of the creates and of the bytes.
-- Answers the server's time in us.
local costs = { MICRO, tonumber(ARGV[1]) * MICRO }
local now_us = server_now_us()
local pair = parse_pair(redis.call('GET', KEYS[1]))
local budgets = { budget_at(2), budget_at(4) }
local changed = false
for place = 1, 2 do
    local budget = budgets[place]
    -- A bucket that is not stored is full.
    if budget and pair[place] then
        local level = math.min(refilled(pair[place], budget, now_us) + costs[place], budget.full)
        pair[place] = { level = level, at = now_us }
        changed = true
    end
end
if changed then store_pair(KEYS[1], pair, budgets, now_us) end
return now_us
