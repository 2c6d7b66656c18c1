#include "strings.h"

#include <cstdint>
#include <stdexcept>

namespace py = pybind11;

namespace {

std::uint64_t length_at(const unsigned char *bytes, std::size_t size, bool is_big_endian) {
  std::uint64_t result = 0;
  for (std::size_t i = 0; i < size; ++i)
    result |= static_cast<std::uint64_t>(bytes[i]) << 8 * (is_big_endian ? size - 1 - i : i);
  return result;
}

[[noreturn]] void end_of_content() {
  PyErr_SetString(PyExc_EOFError, "the content ends within a table of strings");
  throw py::error_already_set();
}

// The string from `start` to `stop`. The caller owns the reference.
py::object part(PyObject *text, Py_ssize_t start, Py_ssize_t stop) {
  PyObject *result = PyUnicode_Substring(text, start, stop);
  if (result == nullptr)
    throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

} // namespace

py::tuple rlx::read_strings(const py::buffer &content, std::size_t position, std::size_t count,
                            std::size_t length_size, bool is_big_endian) {
  const py::buffer_info info = content.request();
  if (info.ndim != 1 || info.itemsize != 1 || info.strides[0] != 1)
    throw std::invalid_argument("expected contiguous bytes");
  const auto *bytes = static_cast<const unsigned char *>(info.ptr);
  const auto size = static_cast<std::size_t>(info.size);
  if (length_size != 4 && length_size != 8)
    throw std::invalid_argument("expected lengths of 4 or 8 bytes");
  // Each string has at least its length, so that this also bounds the tuple.
  if (position > size || count > (size - position) / length_size)
    end_of_content();
  py::tuple strings(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (size - position < length_size)
      end_of_content();
    const std::uint64_t length = length_at(bytes + position, length_size, is_big_endian);
    position += length_size;
    if (length > size - position)
      end_of_content();
    PyObject *text = PyUnicode_DecodeUTF8(reinterpret_cast<const char *>(bytes + position),
                                          static_cast<Py_ssize_t>(length), "strict");
    if (text == nullptr)
      throw py::error_already_set();
    PyTuple_SET_ITEM(strings.ptr(), static_cast<Py_ssize_t>(i), text);
    position += length;
  }
  return py::make_tuple(strings, position);
}

py::object rlx::split_merges(const py::sequence &lines) {
  const py::object items = py::reinterpret_steal<py::object>(PySequence_Fast(lines.ptr(), "expected a sequence"));
  if (!items)
    throw py::error_already_set();
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
  py::list merges(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *line = PySequence_Fast_GET_ITEM(items.ptr(), i);
    if (!PyUnicode_Check(line))
      return py::none();
    const Py_ssize_t size = PyUnicode_GET_LENGTH(line);
    const Py_ssize_t space = PyUnicode_FindChar(line, ' ', 1, size, 1);
    if (space == -2)
      throw py::error_already_set();
    if (space < 0 || space + 1 == size)
      return py::none();
    const py::object first = part(line, 0, space), second = part(line, space + 1, size);
    PyList_SET_ITEM(merges.ptr(), i, py::make_tuple(first, second).release().ptr());
  }
  return merges;
}
