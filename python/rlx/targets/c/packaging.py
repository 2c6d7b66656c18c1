"""Descriptions of a program for build systems: a library of CMake, and a CMSIS-Pack."""

from __future__ import annotations

from rlx.support.printable import markup, printable
from rlx.targets.c.lower.program import CSource
from rlx.version import __version__, release

_VENDOR = "RLX"


def cmake_of(program: CSource) -> str:
    """Return a file that adds the program, and its self-test, as libraries to a CMake project."""
    files, name = program.files, program.name
    return f"""\
# Adds the library {name}, and the library {name}_test with its self-test, which is built only if it is used.
# Written by RLX {__version__}.
add_library({name} STATIC
  "${{CMAKE_CURRENT_LIST_DIR}}/{files.source}"
  "${{CMAKE_CURRENT_LIST_DIR}}/{files.weights}")
target_include_directories({name} PUBLIC "${{CMAKE_CURRENT_LIST_DIR}}")
set_target_properties({name} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON)

add_library({name}_test STATIC EXCLUDE_FROM_ALL "${{CMAKE_CURRENT_LIST_DIR}}/{files.test}")
target_link_libraries({name}_test PUBLIC {name})
set_target_properties({name}_test PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON)
"""


def pack_of(program: CSource) -> str:
    """Return the description of a CMSIS-Pack: a component with the program, and one with its self-test.

    Its publisher sets vendor, URL and licence. Source: the schema PACK.xsd of Open-CMSIS-Pack, version 1.7.7.
    """
    files, name = program.files, program.name
    title = markup(f"The network {printable(program.title, keep='')}")
    version = ".".join(map(str, release()))
    described = markup(f"A network as C99, written by RLX. SHA-256 of the network: {program.sha256}")
    return f"""\
<?xml version="1.0" encoding="UTF-8"?>
<package schemaVersion="1.7.7" xmlns:xs="http://www.w3.org/2001/XMLSchema-instance" xs:noNamespaceSchemaLocation="PACK.xsd">
  <vendor>{_VENDOR}</vendor>
  <name>{name}</name>
  <description>{described}</description>
  <url></url>
  <releases>
    <release version="{version}">Written by RLX {__version__}.</release>
  </releases>
  <taxonomy>
    <description Cclass="Machine Learning">Networks</description>
  </taxonomy>
  <components>
    <component Cclass="Machine Learning" Cgroup="Network" Csub="{name}" Cversion="{version}">
      <description>{title}</description>
      <files>
        <file category="doc" name="{files.readme}"/>
        <file category="header" name="{files.header}"/>
        <file category="source" name="{files.source}"/>
        <file category="source" name="{files.weights}"/>
      </files>
    </component>
    <component Cclass="Machine Learning" Cgroup="Network Test" Csub="{name}" Cversion="{version}">
      <description>Its self-test</description>
      <files>
        <file category="source" name="{files.test}"/>
      </files>
    </component>
  </components>
</package>
"""
