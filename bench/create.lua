-- Creates for wrk: 10,000 bytes of text each, no two alike.
--
-- wrk -s bench/create.lua URL -- ROUND
--
-- The text is made once; a request splices its own number into it, so that the load costs little beside the
-- server it shares its processors with. The request is written out whole, because wrk.format would put it
-- together anew each time.

local body_bytes = 10000
local threads = 0

function setup(thread)
   threads = threads + 1
   thread:set("thread_number", threads)
end

function init(args)
   local round = tonumber(args[1]) or 0
   math.randomseed(os.time() + 1000 * round + thread_number)
   local alphabet = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789\n"
   local characters = {}
   for i = 1, body_bytes - 40 do
      local at = math.random(#alphabet)
      characters[i] = alphabet:sub(at, at)
   end
   text = table.concat(characters)
   head = "POST /v1/pastes HTTP/1.1\r\nHost: " .. wrk.headers["Host"] ..
      "\r\nX-Paste-TTL: 1d\r\nContent-Length: " .. body_bytes .. "\r\n\r\n"
   counter = 0
end

function request()
   counter = counter + 1
   return head .. string.format("thread %08d request %015d ", thread_number, counter) .. text
end

-- A create answers 201 or an error, so what is no error is a 201.
function done(summary, latency, requests)
   local failed = summary.errors.status
   local seconds = summary.duration / 1000000
   local sockets = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
   io.write(string.format("RESULT %.0f %d %d %d %.0f\n", (summary.requests - failed) / seconds,
      summary.requests - failed, failed, sockets, latency:percentile(99)))
end
