//===- RlxDialect.td - The whole rlx dialect --------------------------------------------------===//

include "RlxElementwise.td"
include "RlxShape.td"
include "RlxReduce.td"
include "RlxLinalg.td"
include "RlxFused.td"
include "RlxBlocks.td"
