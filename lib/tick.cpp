#include "tick.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#if defined(__x86_64__) || defined(_M_X64)
#define RLX_TICK_X86_64 1
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#include <x86intrin.h>
#endif
#elif defined(__aarch64__) && defined(__GNUC__)
#define RLX_TICK_AARCH64 1
#endif

namespace rlx {
namespace {

using Clock = std::chrono::steady_clock;

// Over this interval, two clock readings with an error of about 50 ns each give the rate to about 20 ppm.
constexpr std::chrono::nanoseconds calibration_span = std::chrono::milliseconds(5);

std::uint64_t clock_ns() noexcept {
  const auto since_start = Clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since_start).count());
}

#if RLX_TICK_X86_64

// A time-stamp counter that stops or changes its rate with the core's power state measures work, not time.
bool has_invariant_tsc() noexcept {
  constexpr unsigned power_leaf = 0x80000007u;
  constexpr unsigned invariant_bit = 1u << 8;
#if defined(_MSC_VER)
  int registers[4];
  __cpuid(registers, static_cast<int>(0x80000000u));
  if (static_cast<unsigned>(registers[0]) < power_leaf)
    return false;
  __cpuid(registers, static_cast<int>(power_leaf));
  return (static_cast<unsigned>(registers[3]) & invariant_bit) != 0;
#else
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  // Returns 0 if the processor does not have this leaf.
  return __get_cpuid(power_leaf, &eax, &ebx, &ecx, &edx) != 0 && (edx & invariant_bit) != 0;
#endif
}

const bool counts_cycles = has_invariant_tsc();

std::uint64_t cycle_count() noexcept {
  // Without the fence the processor may read the counter before earlier work has finished.
  _mm_lfence();
  return __rdtsc();
}

#elif RLX_TICK_AARCH64

constexpr bool counts_cycles = true;

std::uint64_t cycle_count() noexcept {
  std::uint64_t count;
  asm volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(count) : : "memory");
  return count;
}

#else

constexpr bool counts_cycles = false;

std::uint64_t cycle_count() noexcept { return 0; }

#endif

#if RLX_TICK_X86_64

struct Sample {
  std::uint64_t count;
  std::uint64_t ns;
};

// The same moment on both scales: of several attempts, the one with the smallest distance between its counter readings.
Sample sample() noexcept {
  Sample best{};
  std::uint64_t narrowest = UINT64_MAX;
  for (int attempt = 0; attempt < 16; ++attempt) {
    const std::uint64_t before = cycle_count();
    const std::uint64_t ns = clock_ns();
    const std::uint64_t width = cycle_count() - before;
    if (width < narrowest) {
      narrowest = width;
      best = {before + width / 2, ns};
    }
  }
  return best;
}

double measure_period_ns() {
  const Sample start = sample();
  std::this_thread::sleep_for(calibration_span);
  const Sample end = sample();
  return static_cast<double>(end.ns - start.ns) / static_cast<double>(end.count - start.count);
}

#elif RLX_TICK_AARCH64

// The architecture defines a register with the rate.
double measure_period_ns() {
  std::uint64_t hertz;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
  return 1e9 / static_cast<double>(hertz);
}

#else

double measure_period_ns() { return 1.0; }

#endif

std::atomic<double> period_ns{0.0};
std::mutex calibration;

} // namespace

const char *tick_source() noexcept {
  if (!counts_cycles)
    return "steady_clock";
#if RLX_TICK_AARCH64
  return "cntvct";
#else
  return "rdtsc";
#endif
}

std::uint64_t tick_count() noexcept { return counts_cycles ? cycle_count() : clock_ns(); }

bool tick_is_calibrated() noexcept { return period_ns.load(std::memory_order_acquire) != 0.0; }

double tick_period_ns() {
  const double known = period_ns.load(std::memory_order_acquire);
  if (known != 0.0)
    return known;
  const std::lock_guard<std::mutex> lock(calibration);
  if (!tick_is_calibrated())
    period_ns.store(counts_cycles ? measure_period_ns() : 1.0, std::memory_order_release);
  return period_ns.load(std::memory_order_acquire);
}

} // namespace rlx
