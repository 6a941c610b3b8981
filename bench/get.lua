-- Prints what wrk counted in one line: 200s a second, 200s, errors by status, errors of sockets, p99 in us.

function done(summary, latency, requests)
   local failed = summary.errors.status
   local seconds = summary.duration / 1000000
   local sockets = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
   io.write(string.format("RESULT %.0f %d %d %d %.0f\n", (summary.requests - failed) / seconds,
      summary.requests - failed, failed, sockets, latency:percentile(99)))
end
