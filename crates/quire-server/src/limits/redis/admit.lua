-- Decides one create over four buckets, all or nothing. Appended to bucket.lua.
-- KEYS: the source's pair, the service's pair.
-- ARGV: bytes; the latest server time at which the decision is still wanted, or 0; then rate and burst of the
-- source's creates, the source's bytes, the service's creates, the service's bytes.
-- Answers {code, wait in us, the server's time in us}; code 0 admitted, 1 to 4 the bucket that refuses,
-- 5 too late, with nothing taken.
local TOO_LATE = 5

local bytes = tonumber(ARGV[1])
local deadline_us = tonumber(ARGV[2])
local now_us = server_now_us()
if deadline_us > 0 and now_us > deadline_us then return { TOO_LATE, 0, now_us } end

local costs = { MICRO, bytes * MICRO }
local stored = redis.call('MGET', KEYS[1], KEYS[2])
local pairs_of = { parse_pair(stored[1]), parse_pair(stored[2]) }
local budgets = { { budget_at(3), budget_at(5) }, { budget_at(7), budget_at(9) } }

local levels = { {}, {} }
local refusing, longest_us = 0, 0
for owner = 1, 2 do
    for place = 1, 2 do
        local budget = budgets[owner][place]
        if budget then
            local level = refilled(pairs_of[owner][place], budget, now_us)
            levels[owner][place] = level
            local wait_us = div_ceil(math.max(costs[place] - level, 0), budget.rate)
            if wait_us > 0 and wait_us >= longest_us then
                refusing, longest_us = owner * 2 + place - 2, wait_us
            end
        end
    end
end

for owner = 1, 2 do
    local pair = pairs_of[owner]
    local changed = false
    for place = 1, 2 do
        if refusing == 0 and levels[owner][place] then
            pair[place] = { level = levels[owner][place] - costs[place], at = now_us }
            changed = true
        elseif pair[place] and pair[place].at > now_us then
            -- The clock was set back: the wait that is answered counts from now, so must the refilling.
            pair[place].at = now_us
            changed = true
        end
    end
    if changed then store_pair(KEYS[owner], pair, budgets[owner], now_us) end
end
return { refusing, longest_us, now_us }
