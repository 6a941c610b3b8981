-- Token buckets, the same arithmetic as admission.rs in quire-core, which a test holds this equal to.
-- Every number is an integer below 2^53 and therefore exact in Lua's doubles: a level is at most
-- 4e15 millionths, elapsed time is clamped before it is multiplied, and nothing is divided but by div_ceil.
local MICRO = 1000000
-- A key outlives the moment at which its buckets are full by this much.
local EXPIRY_MARGIN_MS = 1000

-- Lua's own % and a plain division round; fmod does not.
local function div_ceil(dividend, divisor)
    local rest = math.fmod(dividend, divisor)
    local whole = (dividend - rest) / divisor
    if rest > 0 then return whole + 1 end
    return whole
end

-- The budget whose rate and burst stand at this place of ARGV; nil if it is off, which is a rate of 0.
local function budget_at(place)
    local rate = tonumber(ARGV[place])
    if rate == 0 then return nil end
    local full = tonumber(ARGV[place + 1]) * MICRO
    return { rate = rate, full = full, fill_us = div_ceil(full, rate) }
end

local function server_now_us()
    local time = redis.call('TIME')
    return tonumber(time[1]) * MICRO + tonumber(time[2])
end

-- A stored pair is "LEVEL AT LEVEL AT": creates, then bytes. What is missing or unreadable is nil, and full.
local function parse_pair(stored)
    local level, at, bytes_level, bytes_at =
        string.match(stored or '', '^(%d+) (%d+) (%d+) (%d+)$')
    if not level then return { nil, nil } end
    return {
        { level = tonumber(level), at = tonumber(at) },
        { level = tonumber(bytes_level), at = tonumber(bytes_at) },
    }
end

-- The level now. After a step back of the clock nothing refills; when the caller stores the new time,
-- refilling goes on from there.
local function refilled(bucket, budget, now_us)
    if not bucket then return budget.full end
    local elapsed_us = math.min(math.max(now_us - bucket.at, 0), budget.fill_us)
    return math.min(bucket.level + budget.rate * elapsed_us, budget.full)
end

-- Stores a pair until it is full again by these budgets. A bucket that is off is carried along for apps that
-- have it on, or stored as empty since nobody knows what full would be.
local function store_pair(key, pair, budgets, now_us)
    local expiry_ms = EXPIRY_MARGIN_MS
    for place = 1, 2 do
        local budget = budgets[place]
        if budget then
            pair[place] = pair[place] or { level = budget.full, at = now_us }
            local missing = math.max(budget.full - pair[place].level, 0)
            expiry_ms = math.max(expiry_ms, div_ceil(div_ceil(missing, budget.rate), 1000) + EXPIRY_MARGIN_MS)
        else
            pair[place] = pair[place] or { level = 0, at = 0 }
        end
    end
    -- Not '..' and not %d: the first rounds to 14 digits, the second may be 32 bits wide.
    local stored = string.format('%.0f %.0f %.0f %.0f', pair[1].level, pair[1].at, pair[2].level, pair[2].at)
    redis.call('SET', key, stored, 'PX', string.format('%.0f', expiry_ms))
end
