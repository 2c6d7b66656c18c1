# rlx-dialect-check compares our reader of dialect/*.td with LLVM's: the files generated from the records of `llvm-tblgen` must equal
# the committed ones, and `mlir-tblgen` must accept the records as ops. Only this target needs LLVM's TableGen tools; `make dialect`
# does not.

find_program(RLX_MLIR_TBLGEN NAMES mlir-tblgen-22 mlir-tblgen HINTS /usr/lib/llvm-22/bin DOC "TableGen with MLIR's back ends")

if(RLX_MLIR_TBLGEN)
  # The other tool and the .td files must belong to the same LLVM. A machine may have several.
  file(REAL_PATH "${RLX_MLIR_TBLGEN}" mlir_tblgen_path)
  cmake_path(GET mlir_tblgen_path PARENT_PATH llvm_bin)
  find_program(RLX_LLVM_TBLGEN NAMES llvm-tblgen llvm-tblgen-22 HINTS "${llvm_bin}" DOC "TableGen with --dump-json")
  find_path(RLX_MLIR_INCLUDE mlir/IR/OpBase.td
    HINTS "${llvm_bin}/../include" /usr/lib/llvm-22/include DOC "Folder of mlir/IR/OpBase.td")
endif()

if(NOT RLX_MLIR_TBLGEN OR NOT RLX_LLVM_TBLGEN OR NOT RLX_MLIR_INCLUDE)
  add_custom_target(rlx-dialect-check
    COMMAND "${CMAKE_COMMAND}" -E echo
      "Not found: mlir-tblgen, llvm-tblgen or mlir/IR/OpBase.td of LLVM 22. On Debian: apt-get install mlir-22-tools llvm-22 libmlir-22-dev. Elsewhere set RLX_MLIR_TBLGEN, RLX_LLVM_TBLGEN and RLX_MLIR_INCLUDE."
    COMMAND "${CMAKE_COMMAND}" -E false
    VERBATIM)
  return()
endif()

set(root dialect/RlxDialect.td)
set(records "${PROJECT_BINARY_DIR}/records.json")
set(op_classes "${PROJECT_BINARY_DIR}/op_classes.py")
set(include_dirs -I "${RLX_MLIR_INCLUDE}" -I dialect)
file(GLOB definitions CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/dialect/*.td")

# Records contain the path of their source as given, so pass it relative to the repository.
add_custom_command(OUTPUT "${records}"
  COMMAND "${RLX_LLVM_TBLGEN}" --dump-json ${include_dirs} ${root} -o "${records}"
  DEPENDS ${definitions}
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "TableGen: records"
  VERBATIM)
# MLIR's own version of the op classes. A test compares their accessors with those of rlx.ir.op.op_classes.
add_custom_command(OUTPUT "${op_classes}"
  COMMAND "${RLX_MLIR_TBLGEN}" -gen-python-op-bindings -bind-dialect=rlx ${include_dirs} ${root} -o "${op_classes}"
  DEPENDS ${definitions}
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "TableGen: Python op classes"
  VERBATIM)

# A custom target always runs, because a generated file may have been edited or removed.
add_custom_target(rlx-dialect-check
  COMMAND "${Python_EXECUTABLE}" -m tools.generate_dialect --check --records "${records}"
  DEPENDS "${records}" "${op_classes}"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "rlx-dialect-check: tools/generate_dialect.py"
  VERBATIM)
