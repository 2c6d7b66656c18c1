//===- RlxDialect.td - The whole rlx dialect --------------------------------------------------===//

include "RlxElementwise.td"
include "RlxShape.td"
include "RlxReduce.td"
include "RlxLinalg.td"
include "RlxRandom.td"
include "RlxQuant.td"
include "RlxRecurrent.td"
include "RlxBackward.td"
include "RlxFused.td"
include "RlxControl.td"
include "RlxBlocks.td"
