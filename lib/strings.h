// Tables of strings: the tokens and merges of a model's vocabulary, of which there are hundreds of thousands.
#pragma once

#include <cstddef>

#include <pybind11/pybind11.h>

namespace rlx {

// Reads strings that are stored one after the other, each after its length in bytes, an unsigned integer.
//
//   content: the bytes of the file
//   position: the first byte of the table, at most the size of the content
//   count: the number of strings
//   length_size: the bytes of a length, 4 or 8
//   is_big_endian: the byte order of the lengths
//
// Returns a tuple of strings and the position after the table. Raises EOFError if the content ends before the table
// does, and UnicodeDecodeError for a string that is not UTF-8.
pybind11::tuple read_strings(const pybind11::buffer &content, std::size_t position, std::size_t count,
                             std::size_t length_size, bool is_big_endian);

// Splits each string of a sequence at its first space that is not its first character.
//
// Returns a list of pairs, or None if a string has no such space, or nothing after it.
pybind11::object split_merges(const pybind11::sequence &lines);

} // namespace rlx
