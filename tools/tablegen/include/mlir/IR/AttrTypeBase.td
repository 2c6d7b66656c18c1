// The definitions of MLIR's file of this name that dialect/*.td uses: see OpBase.td.

#ifndef ATTRTYPEBASE_TD
#define ATTRTYPEBASE_TD

include "mlir/IR/OpBase.td"

class AttrDef<Dialect dialect_, string className> : Attr<CPred<"true">, ""> {
  Dialect dialect = dialect_;
  string mnemonic = ?;
  string description = "";
  dag parameters = (ins);
  string assemblyFormat = ?;
}

#endif // ATTRTYPEBASE_TD
