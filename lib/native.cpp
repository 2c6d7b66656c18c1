// The Python module rlx._native: functions that are too slow in Python.
#include "strings.h"
#include "tick.h"

#include <cmath>
#include <cstdint>

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace {

double period_ns() {
  if (rlx::tick_is_calibrated())
    return rlx::tick_period_ns();
  // Calibration sleeps, and other threads may want the interpreter or the same calibration.
  const py::gil_scoped_release release;
  return rlx::tick_period_ns();
}

std::int64_t difference_ns(std::uint64_t later, std::uint64_t earlier) {
  // The unsigned difference is correct modulo 2^64, even if the counter has wrapped.
  const auto counts = static_cast<std::int64_t>(later - earlier);
  return std::llround(static_cast<double>(counts) * period_ns());
}

std::int64_t elapsed_ns(std::uint64_t earlier) {
  const std::uint64_t now = rlx::tick_count();
  const std::int64_t nanoseconds = difference_ns(now, earlier);
  // The counters of two cores may differ by a few counts.
  return nanoseconds < 0 ? 0 : nanoseconds;
}

} // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "The C++ half of RLX; reached through rlx.native.";
  module.attr("__version__") = RLX_VERSION;
  module.def("tick_count", &rlx::tick_count, "The counter's present reading.");
  module.def("tick_source", &rlx::tick_source, "'rdtsc', 'cntvct' or 'steady_clock'.");
  module.def("tick_elapsed_ns", &elapsed_ns, py::arg("earlier"), "Nanoseconds since a reading, at least 0.");
  module.def("tick_difference_ns", &difference_ns, py::arg("later"), py::arg("earlier"),
             "Nanoseconds between two readings, negative when they come in the wrong order.");
  module.def("read_strings", &rlx::read_strings, py::arg("content"), py::arg("position"), py::arg("count"),
             py::arg("length_size"), py::arg("is_big_endian"),
             "A tuple of the strings of a table, each stored after its length, and the position after it.");
  module.def("split_merges", &rlx::split_merges, py::arg("lines"),
             "The two tokens of each merge, or None if a line has no two tokens.");
}
