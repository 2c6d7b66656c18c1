// The processor's cycle counter as a timer.
#pragma once

#include <cstdint>

namespace rlx {

/// Name of the counter that `tick_count` reads: "rdtsc", "cntvct" or "steady_clock".
const char *tick_source() noexcept;

/// Reads the counter after all earlier instructions have completed.
std::uint64_t tick_count() noexcept;

/// True once the counter's rate is known, so that `tick_period_ns` returns at once.
bool tick_is_calibrated() noexcept;

/// Nanoseconds per count. The first call may measure it against the monotonic clock, which takes about 5 ms;
/// every later call, from any thread, returns the same value.
double tick_period_ns();

} // namespace rlx
