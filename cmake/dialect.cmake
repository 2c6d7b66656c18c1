# rlx-dialect regenerates the committed files that come from dialect/*.td; rlx-dialect-check fails when one is
# stale. Both need LLVM's TableGen tools. Nothing else does: without them the package builds all the same.

find_program(RLX_MLIR_TBLGEN NAMES mlir-tblgen-22 mlir-tblgen HINTS /usr/lib/llvm-22/bin DOC "TableGen with MLIR's back ends")

if(RLX_MLIR_TBLGEN)
  # The other tool and the .td files have to be of the same LLVM, and a machine may have several.
  file(REAL_PATH "${RLX_MLIR_TBLGEN}" mlir_tblgen_path)
  cmake_path(GET mlir_tblgen_path PARENT_PATH llvm_bin)
  find_program(RLX_LLVM_TBLGEN NAMES llvm-tblgen llvm-tblgen-22 HINTS "${llvm_bin}" DOC "TableGen with --dump-json")
  find_path(RLX_MLIR_INCLUDE mlir/IR/OpBase.td
    HINTS "${llvm_bin}/../include" /usr/lib/llvm-22/include DOC "Folder of mlir/IR/OpBase.td")
endif()

if(NOT RLX_MLIR_TBLGEN OR NOT RLX_LLVM_TBLGEN OR NOT RLX_MLIR_INCLUDE)
  foreach(target rlx-dialect rlx-dialect-check)
    add_custom_target(${target}
      COMMAND "${CMAKE_COMMAND}" -E echo
        "Not found: mlir-tblgen, llvm-tblgen or mlir/IR/OpBase.td of LLVM 22. On Debian: apt-get install mlir-22-tools llvm-22 libmlir-22-dev. Elsewhere set RLX_MLIR_TBLGEN, RLX_LLVM_TBLGEN and RLX_MLIR_INCLUDE."
      COMMAND "${CMAKE_COMMAND}" -E false
      VERBATIM)
  endforeach()
  return()
endif()

set(root dialect/RlxDialect.td)
set(records "${PROJECT_BINARY_DIR}/records.json")
set(generator tools/generate_dialect.py)
set(include_dirs -I "${RLX_MLIR_INCLUDE}" -I dialect)
file(GLOB definitions CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/dialect/*.td")

# Records carry the path of their source as it was given, so it is given relative to the repository.
add_custom_command(OUTPUT "${records}"
  COMMAND "${RLX_LLVM_TBLGEN}" --dump-json ${include_dirs} ${root} -o "${records}"
  DEPENDS ${definitions}
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "TableGen: records"
  VERBATIM)
add_custom_target(rlx-dialect-records DEPENDS "${records}")

# Custom targets always run: a generated file may have been edited or removed since.
foreach(target rlx-dialect rlx-dialect-check)
  set(mode)
  if(target STREQUAL rlx-dialect-check)
    set(mode --check)
  endif()
  add_custom_target(${target}
    COMMAND "${Python_EXECUTABLE}" ${generator}
      --records "${records}" --output-root . ${mode}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    COMMENT "${target}: ${generator}"
    VERBATIM)
  add_dependencies(${target} rlx-dialect-records)
endforeach()
