-- Token buckets, the same arithmetic as admission.rs in quire-core, which a test holds this equal to.
-- Every number is an integer below 2^53 and therefore exact in Lua's doubles: a level is at most
-- 4e15 millionths, elapsed time is clamped before it is multiplied, and nothing is divided but by div_ceil.
-- A pair of buckets is four doubles: level and time of the creates, level and time of the bytes. A budget is
-- a rate and what a full bucket holds; a rate of 0 is no limit. Flat on purpose: a table would
-- be garbage on every call.
local fmod, min, max, unpack, pack = math.fmod, math.min, math.max, struct.unpack, struct.pack
local MICRO = 1000000
local PAIR, PAIR_BYTES = '<dddd', 32
-- Rate and burst of a pair's budgets, creates before bytes.
local BUDGETS = '<I4I4I4I4'
-- So long ago that any budget is full by now; the difference to now is still exact.
local NEVER_US = -4e15
-- A key outlives the moment at which its buckets are full by this much.
local EXPIRY_MARGIN_MS = 1000

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * MICRO + tonumber(time[2])

-- A plain division rounds, and so does Lua's own %; fmod does not.
local function div_ceil(dividend, divisor)
    local rest = fmod(dividend, divisor)
    if rest > 0 then return (dividend - rest) / divisor + 1 end
    return dividend / divisor
end

-- What is missing, or is no pair, is full.
local function read_pair(stored)
    if stored and #stored == PAIR_BYTES then
        local level, at, bytes_level, bytes_at = unpack(PAIR, stored)
        if level >= 0 and at >= NEVER_US and bytes_level >= 0 and bytes_at >= NEVER_US then
            return true, level, at, bytes_level, bytes_at
        end
    end
    return false, 0, NEVER_US, 0, NEVER_US
end

-- The level now. After a step back of the clock nothing refills; when the caller stores the new time, refilling
-- goes on from there.
local function refilled(level, at, rate, full)
    if rate == 0 then return level end
    local elapsed_us = min(max(now_us - at, 0), div_ceil(full, rate))
    return min(level + rate * elapsed_us, full)
end

-- Until a bucket is full, in milliseconds.
local function filling_ms(level, rate, full)
    if rate == 0 or level >= full then return 0 end
    return div_ceil(div_ceil(full - level, rate), 1000)
end

-- Stores a pair until it is full again by these budgets. Whoever writes last decides about the expiry.
local function store_pair(key, level, at, rate, full, bytes_level, bytes_at, bytes_rate, bytes_full)
    local expiry_ms = max(filling_ms(level, rate, full), filling_ms(bytes_level, bytes_rate, bytes_full))
    local pair = pack(PAIR, level, at, bytes_level, bytes_at)
    -- Written out here, which is faster than letting the server do it, and by %.0f, which does not round.
    redis.call('SET', key, pair, 'PX', string.format('%.0f', expiry_ms + EXPIRY_MARGIN_MS))
end
