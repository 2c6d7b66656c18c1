# The extension module rlx._native.
#
# Under pip (SKBUILD is set) it is installed into the wheel. A plain `cmake --build build` puts it next to the Python
# sources, so that it can be imported from a checkout on PYTHONPATH.

if(NOT SKBUILD)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m pybind11 --cmakedir
    OUTPUT_VARIABLE RLX_PYBIND11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(PYBIND11_FINDPYTHON ON)
find_package(pybind11 2.13 CONFIG QUIET HINTS "${RLX_PYBIND11_DIR}")

if(NOT pybind11_FOUND OR NOT Python_Development.Module_FOUND)
  set(missing "rlx._native needs pybind11 and the headers of ${Python_EXECUTABLE}")
  if(SKBUILD)
    message(FATAL_ERROR "${missing}")
  endif()
  message(STATUS "${missing}: it will not be built")
  return()
endif()

file(GLOB sources CONFIGURE_DEPENDS lib/*.cpp)
pybind11_add_module(_native MODULE ${sources})
target_compile_features(_native PRIVATE cxx_std_17)
target_compile_definitions(_native PRIVATE RLX_VERSION="${PROJECT_VERSION}")
if(MSVC)
  target_compile_options(_native PRIVATE /W4)
else()
  target_compile_options(_native PRIVATE -Wall -Wextra)
endif()

if(SKBUILD)
  install(TARGETS _native LIBRARY DESTINATION rlx)
else()
  # The generator expression prevents multi-configuration generators from adding a folder per configuration.
  set_target_properties(_native PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "$<1:${PROJECT_SOURCE_DIR}/python/rlx>"
    RUNTIME_OUTPUT_DIRECTORY "$<1:${PROJECT_SOURCE_DIR}/python/rlx>")
endif()
