// The definitions of MLIR's file of this name that dialect/*.td uses: see OpBase.td in mlir/IR.

#ifndef MLIR_INTERFACES_SIDEEFFECTS
#define MLIR_INTERFACES_SIDEEFFECTS

include "mlir/IR/OpBase.td"

def Pure : Trait;

#endif // MLIR_INTERFACES_SIDEEFFECTS
